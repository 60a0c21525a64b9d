"""Documents as the users of other projects have them: the table in rivals.py, row by row."""

import json
from ipaddress import ip_address, ip_interface

import pytest

from kube_rdma.attach.documents import cni_conf, network_definition, network_status, networks
from kube_rdma.ipam import ip_conf
from kube_rdma.lib.text.reader import read
from kube_rdma.model.attach.cni import Call, CniInterface, CniResult, LinkAddress, Verb
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId
from kube_rdma.pools.documents import config
from tests.kit.refusals import refusal
from tests.unit.bad_input import rivals, rivals_whereabouts


def text(document):
    return document if isinstance(document, str) else json.dumps(document)


def ipam(case):
    conf = {"cniVersion": "1.0.0", "type": "macvlan", "ipam": case.document, **case.more}
    return ip_conf.load(read(text(conf).encode(), "conf"))


def definition(case):
    return network_definition.load("default", "net", text(case.document).encode(), None)


def called(case):
    more = {key: value for key, value in case.more.items() if key in ("args", "runtimeConfig")}
    conf = {"cniVersion": "1.0.0", "name": "x", "type": "kube-rdma", "ipam": case.document, **more}
    call = Call(
        Verb.ADD,
        "1.0.0",
        "x",
        text(conf).encode(),
        ContainerId("c"),
        InterfaceName("net1"),
        args=case.more.get("cni_args", ()),
    )
    return cni_conf.network(call, "default/net", None)


def joined(*values):
    return " ".join("-" if value is None else str(value) for value in values)


def said_of_ipam(case):
    conf = ipam(case)
    ranges = conf.pool.ranges if conf.pool else ()
    return {
        "ranges": [joined(one.subnet, one.first, one.last, one.gateway) for one in ranges],
        "addresses": [joined(one.address, one.gateway) for one in conf.addresses],
        "routes": [joined(one.to, one.via) for one in conf.routes],
        "notes": list(conf.notes),
    }


def said_of_definition(case):
    meant = definition(case)
    network = meant.network
    return {
        "kind": str(network.kind),
        "mac": network.mac,
        "mtu": network.mtu,
        "guid": getattr(network, "guid", None),
        "sysctls": network.sysctls,
        "ipam_plugin": network.ipam_plugin,
        "warnings": list(meant.warnings),
    }


def said_of_call(case):
    meant, ask = called(case)
    return {
        "static": [
            joined(f"{one.address}/{one.prefix}", one.gateway) for one in meant.network.static
        ],
        "asked": [
            f"{one.address}/{one.prefix}" if one.prefix else str(one.address)
            for one in ask.addresses
        ],
    }


def said_of_annotation(case):
    request = networks.load(text(case.document), "default")
    return {
        "networks": [f"{ask.namespace}/{ask.network} {ask.interface}" for ask in request.asks],
        "mac": next((ask.mac for ask in request.asks if ask.mac), None),
        "guid": next((ask.guid for ask in request.asks if ask.guid), None),
        "warnings": list(request.warnings),
    }


def said_of_config(case):
    meant = config.parse(text(case.document).encode(), "config.json")
    return {"pools": [pool.resource for pool in meant.pools]}


def said_of_status(case):
    result = CniResult(
        tuple(CniInterface(name, "02:00:0a:00:00:01", netns) for name, netns in case.document),
        tuple(
            LinkAddress(ip_interface(address), ip_address(via) if via else None, link)
            for address, via, link in case.more["addresses"]
        ),
    )
    entries = json.loads(network_status.status((), "cbr0", result))
    return {
        "entries": [
            " ".join(
                (
                    entry.get("interface", ""),
                    ",".join(entry.get("ips", ())),
                    "default" if entry.get("default") else "-",
                )
            )
            for entry in entries
        ]
    }


TABLES = [
    (rivals.IPAM, said_of_ipam),
    (rivals_whereabouts.IPAM, said_of_ipam),
    (rivals.DEFINITIONS, said_of_definition),
    (rivals.CALLS, said_of_call),
    (rivals.ANNOTATIONS, said_of_annotation),
    (rivals.CONFIGS, said_of_config),
    (rivals.STATUSES, said_of_status),
]
SENTENCES = ("notes", "warnings")


@pytest.mark.parametrize(
    ("case", "said"),
    [pytest.param(case, said, id=name) for table, said in TABLES for name, case in table.items()],
)
def test_a_rivals_document_means_what_the_table_says(case, said):
    """All that it means: what a row does not name is not there, and each sentence has its part."""
    if part := case.expected.get("refused"):
        assert part in str(refusal(said, case))
        return
    for key, value in said(case).items():
        expected = case.expected.get(key, None if value is None else type(value)())
        if key in SENTENCES:
            assert len(value) == len(expected), value
            assert all(part in sentence for part, sentence in zip(expected, value, strict=True))
        else:
            assert value == expected, key
