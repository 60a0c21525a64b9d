"""What reads JSON of the API server, of runtimes and plugins, each with a document that it takes.

A new reader of foreign bytes gets a line in PARSERS, here, in foreign_texts.py, which has what
people and the node write, or in foreign_files.py, which has what programs print and people's tools
write (tests/house/test_foreign_json.py finds one that has none). tests/unit/test_foreign_parsers.py
gives each of them documents that are nested, long, numeric, textless or cut, and lets nothing out
of it but the product's own errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from kube_client import wire
from kube_client.errors import failure
from kube_client.kinds import ObjectKind, Stored
from kube_rdma.adapters.cluster.kinds.pod import POD, pod_state
from kube_rdma.adapters.cni import protocol
from kube_rdma.attach.cluster import request_of
from kube_rdma.attach.documents import cni_conf
from kube_rdma.attach.rules.repair import EvictionTurns, evictable
from kube_rdma.discover.cluster import recorded_policy
from kube_rdma.fabric.rules.leaves import LEAVES, remembered_leaves
from kube_rdma.ipam.cluster import IP_BLOCK, IP_POOL, borrow_queue, pool_of, stored_block
from kube_rdma.lib.text.document import of_json
from kube_rdma.model.attach.attachment import RESTART
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.kubernetes import NodeState, PodState
from kube_rdma.model.pools import HARDWARE
from kube_rdma.pools.kind import NODE_POLICY, policy_of
from kube_rdma.verify.cluster import BANDWIDTH_CHECK, seen_check

Parser = Callable[[bytes], object]

ENVIRONMENT = b"\0".join(
    (
        *(b"CNI_COMMAND=ADD", b"CNI_CONTAINERID=c", b"CNI_IFNAME=eth0", b"CNI_NETNS=/run/netns/a"),
        b"CNI_ARGS=K8S_POD_NAME=a;K8S_POD_NAMESPACE=b",
    )
)
META = {
    "metadata": {
        "name": "a",
        "namespace": "b",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 3,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "ownerReferences": [{"kind": "x", "name": "y", "uid": "z"}],
    }
}
CONTAINER = {"name": "c", "image": "i", "resources": {"limits": {"rdma/hca": "1"}}}
POD_OBJECT = META | {
    "spec": {"nodeName": "n", "hostNetwork": True, "containers": [CONTAINER]},
    "status": {"phase": "Running"},
}
CHECK_OBJECT = META | {
    "spec": {
        "selector": {"a": "b"},
        "everySeconds": 60,
        "startSeconds": 3,
        "template": {"spec": {"containers": [CONTAINER]}},
    },
    "status": {
        "observedGeneration": 1,
        "state": "Well",
        "startTime": "2026-11-22T12:00:00Z",
        "suspects": [{"kind": "node", "node": "a", "pairs": 1, "of": 1, "medianDue": "80G"}, "b"],
        "pairs": [{"client": "a", "server": "b", "rail": 0, "measured": "9G", "rating": "ok"}],
    },
}
POOL_OBJECT = META | {
    "spec": {
        "ranges": [
            {"subnet": "10.0.0.0/24"},
            {
                "subnet": "10.1.0.0/16",
                "perNode": {"prefix": 31, "nodes": [{"node": "n", "subnet": "10.1.0.0/31"}]},
            },
        ],
        "excludes": ["10.0.0.9"],
        "routes": [{"dst": "10.9.0.0/24", "gw": "10.0.0.1"}],
        "namespaces": ["a"],
    },
    "status": {"wants": [{"node": "n", "family": "IPv4", "count": 1, "address": "10.0.0.4"}]},
}
BLOCK_OBJECT = META | {
    "spec": {
        "network": "a",
        "first": "10.0.0.0",
        "edition": 1,
        "holdings": [{"node": "n", "addresses": ["10.0.0.1", "10.0.0.4-10.0.0.7"]}],
        "pins": [{"owner": "a/b/net1", "address": "10.0.0.9"}],
    }
}
POLICY_OBJECT = META | {
    "spec": {
        "priority": 3,
        "nodeSelector": {"a": "b"},
        "pools": [{"resource": "rdma/hca", "mode": "hca", "shares": 10}],
    }
}
RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "e", "mtu": 1500}],
    "ips": [{"address": "10.0.0.1/24", "interface": 0}],
    "routes": [{"dst": "0.0.0.0/0", "table": 3}],
    "dns": {"nameservers": ["1.1.1.1"]},
}
CONF = {
    "cniVersion": "1.0.0",
    "name": "n",
    "type": "kube-rdma",
    "kube-rdma-chained": True,
    "master": "eth0",
    "deviceID": "0000:01:00.0",
    "args": {"cni": {"ips": ["10.0.0.1/24"], "guid": "x"}},
    "runtimeConfig": {
        "ips": ["10.0.0.1/24"],
        "mac": "0e:00:00:00:00:01",
        "deviceID": "x",
        "io.kubernetes.cri.pod-annotations": {"a": "b"},
    },
    "ipam": {"type": "whereabouts", "range": "10.0.0.0/24", "exclude": ["10.0.0.1/32"]},
    "prevResult": RESULT,
}
STATUS = {
    "status": "Failure",
    "message": "x",
    "reason": "y",
    "code": 403,
    "details": {"name": "a", "causes": [{"reason": "x", "message": "y", "field": "z"}]},
}
BLOCKS = [{"cniConf": {"name": "rdma"}, "deviceConf": {"ifName": "eth1"}, "master": True}]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _restart(data: bytes) -> None:
    pod = PodState("b", "a", "u", annotations=((RESTART, _text(data)),), node="n", phase="Running")
    if request := request_of(pod):
        evictable([(pod, request)], 1e6, EvictionTurns())


def _of(kind: ObjectKind, read: Callable[..., object]) -> Parser:
    return lambda data: read(wire.stored(kind, data))


def _leaves(data: bytes) -> object:
    return remembered_leaves(NodeState("a", annotations=((LEAVES, _text(data)),)))


def _call(data: bytes) -> None:
    protocol.version_of(data)
    call = protocol.decode(ENVIRONMENT, data, 3)
    protocol.encode(call, CniResult())
    for read in (cni_conf.plugin_type, cni_conf.resource, cni_conf.network_name):
        read(call.config)
    cni_conf.addresses(call)


def _check(stored: Stored[Any, Any]) -> None:
    if status := seen_check(stored).status:
        assert all(figure >= 0 for figure in status.figures_of(1).values())
        assert status.history is None or status.history.generation == status.observed_generation


def _network(data: bytes) -> None:
    cni_conf.network(protocol.decode(ENVIRONMENT, data, 3), "default/x", None)


def _result(data: bytes) -> object:
    try:
        return protocol.decoded_result(data)
    except ValueError as error:
        if type(error) is ValueError:  # its contract
            return None
        raise


PARSERS: Mapping[str, tuple[object, Parser]] = {
    "request to restart a pod": ({"node": "n", "at": 1_000_000, "why": "x"}, _restart),
    "list": ({"metadata": {"resourceVersion": "1"}, "items": [POD_OBJECT] * 2}, wire.page),
    "line of a watch": ({"type": "ADDED", "object": POD_OBJECT}, wire.line),
    "identity": (POD_OBJECT, wire.identity),
    "Pod": (POD_OBJECT, _of(POD, pod_state)),
    "BandwidthCheck": (CHECK_OBJECT, _of(BANDWIDTH_CHECK, _check)),
    "NodePolicy": (POLICY_OBJECT, _of(NODE_POLICY, policy_of)),
    "hardware of a NodePolicy": (
        [{"cards": [{"id": "0000:04:00.0", "gbps": 400.0, "link": "InfiniBand"}], "gpus": 8}],
        lambda data: recorded_policy("a", {}, {HARDWARE: data.decode(errors="replace")}),
    ),
    "IPBlock": (BLOCK_OBJECT, _of(IP_BLOCK, stored_block)),
    "IPPool": (POOL_OBJECT, _of(IP_POOL, pool_of)),
    "borrow requests of an IPPool": (POOL_OBJECT, _of(IP_POOL, borrow_queue)),
    "refusal of the API server": (
        STATUS,
        lambda data: failure(
            wire.ApiRequest("get", "", "v1", "pods", "a", "b"), wire.Answer(422, data), "trial"
        ),
    ),
    "CNI call": (CONF, _call),
    "network of a CNI call": (CONF, _network),
    "result of a CNI plugin": (RESULT, _result),
    "blocks of pod-networks": (BLOCKS, lambda data: cni_conf.blocks(_text(data))),
    "leaves of a node": ({"0000:81:00.0/1": "leaf-1"}, _leaves),
    "object": (POD_OBJECT, of_json),
}

_HOSTILE = (
    *(b"[" * 1200 + b"]" * 1200, b'{"a":' * 900 + b"1" + b"}" * 900, b"[[[]]]"),
    *(b"1e999", b"9" * 400, b"9" * 5000, b"-1", b"1.5", b"99999999999999999999", b"NaN"),
    *(b'"' + b"9" * 5000 + b'"', b'"1.' + b"9" * 5000 + b'.0/24"', b'"10.0.0.0/-1"', b'"::/129"'),
    *(b'"\xff"', b'"\\ud800"', b'"\\u0000"', b'""', b'"x"', b"null", b"true", b"[]", b"{}"),
)


def text_of(document: object) -> bytes:
    """A text as it is, anything else as JSON."""
    return document.encode() if isinstance(document, str) else json.dumps(document).encode()


def broken(document: object, count: int, seed: int = 0) -> Iterator[bytes]:
    """The document with one to three faults, `count` times; the same ones for a seed."""
    random = Random(seed)  # noqa: S311  the same for everybody
    whole = text_of(document)
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            _break(data, random)
        yield bytes(data)


def _break(data: bytearray, random: Random) -> None:
    """A value exchanged, bytes taken out, put in or changed, or the end cut off."""
    kind, at = random.random(), random.randrange(len(data) + 1)
    colons = [place for place, sign in enumerate(data) if sign == ord(":")]
    if kind < 0.5 and colons:
        begin = end = random.choice(colons) + 1
        while end < len(data) and data[end] not in b",}]\n":
            end += 1
        data[begin:end] = random.choice(_HOSTILE)
    elif kind < 0.65:
        del data[at : at + random.randint(1, 9)]
    elif kind < 0.8:
        data[at:at] = random.choice(_HOSTILE)
    elif kind < 0.9 and data:
        data[at % len(data)] = random.randrange(256)
    else:
        del data[at:]
