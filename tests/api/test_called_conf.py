"""What a caller put into a configuration: the rest of what the pod's entry would have said."""

import json

import pytest

from kube_rdma.api.called_conf import network, plugin_type
from kube_rdma.model.binding import ContainerId
from kube_rdma.model.cni import Call, Verb
from kube_rdma.model.errors import Refused
from kube_rdma.model.ip import InterfaceName


def called(cni_args=(), **config):
    text = json.dumps({"cniVersion": "1.0.0", "name": "x", "type": "kube-rdma", **config}).encode()
    call = Call(
        Verb.ADD, "1.0.0", "x", text, ContainerId("c"), InterfaceName("net1"), args=tuple(cni_args)
    )
    return network(call, "ml/rail")


def test_what_the_pod_asks_for_is_found_in_all_places():
    """Each address once, with its length where it has one."""
    definition, ask = called(
        cni_args=[("IP", "10.0.0.1,10.0.0.2/24"), ("MAC", "02:00:00:00:00:09")],
        runtimeConfig={"ips": ["10.0.0.1", "fd00::1/64"], "deviceID": "hca-7"},
        deviceID="hca-8",
    )
    assert (definition.network.name, ask.namespace, ask.network) == ("ml/rail", "ml", "rail")
    assert [(str(one.address), one.prefix) for one in ask.addresses] == [
        ("10.0.0.1", None),
        ("10.0.0.2", 24),
        ("fd00::1", 64),
    ]
    assert (ask.mac, ask.device_id) == ("02:00:00:00:00:09", "hca-7")
    assert ask.interface == "net1"


def test_nothing_is_asked_for_by_a_bare_call():
    """As by most of them."""
    _, ask = called()
    assert (ask.addresses, ask.mac, ask.guid, ask.device_id, ask.capabilities) == (
        (),
        None,
        None,
        None,
        (),
    )


def test_the_guid_of_a_call():
    """In runtimeConfig, and the mark of ib-kubernetes in args.cni."""
    guid = "02:00:0a:00:00:00:00:01"
    mark = {"cni": {"mellanox.infiniband.app": "configured"}}
    _, ask = called(runtimeConfig={"infinibandGUID": guid}, args=mark)
    assert (ask.guid, ask.configured) == (guid, True)
    assert not called()[1].configured


def test_what_others_would_do_is_kept_for_the_refusal():
    """rules/networks says why ports and rates have no effect."""
    _, ask = called(runtimeConfig={"portMappings": [{"hostPort": 1}], "io.x/other": 1})
    assert ask.capabilities == (("portMappings", b'[{"hostPort": 1}]'),)


@pytest.mark.parametrize(
    "facts",
    [
        {"runtimeConfig": {"ips": "10.0.0.1"}},
        {"runtimeConfig": []},
        {"args": {"cni": {"ips": [3]}}},
        {"runtimeConfig": {"mac": "x"}},
        {"cni_args": [("IP", "10.0.0.300")]},
        {"cni_args": [("MAC", "x")]},
    ],
)
def test_nonsense_is_refused_with_its_place(facts):
    """Nothing of it becomes an address by accident."""
    with pytest.raises(Refused) as refused:
        called(**facts)
    assert refused.value.where.startswith(("NetworkAttachmentDefinition ml/rail", "CNI_ARGS of"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"type": "macvlan"}', "macvlan"),
        (b'{"plugins": [{"type": "kube-rdma"}, {"type": "tuning"}]}', "kube-rdma"),
        (b'{"plugins": []}', ""),
        (b"{", ""),
        (b"[]", ""),
        (b"", ""),
    ],
)
def test_the_type_of_a_network_is_that_of_its_first_plugin(text, found):
    """Whatever else is wrong with the document."""
    assert plugin_type(text) == found
