"""CNI configurations of the node, and those of one call with what the caller put into them."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.documents import cni_conf
from kube_rdma.model.attach.attachment import CardAddresses, NetworkKind
from kube_rdma.model.attach.cni import Call, ConfFile, Verb
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.late_binding import ContainerId

PLUGIN = {"type": "host-device", "capabilities": {"ipRanges": True, "deviceID": True}}
META = {"resourceName": "vke.volcengine.com/rdma", "ipRangesSource": "netDeviceSelf"}


def configured(**conf):
    found = cni_conf.load("default", "rdma", json.dumps({"name": "rdma", **conf}).encode())
    assert found.warnings == ()
    return found.network


def test_a_configuration_is_found_by_the_name_inside():
    """The first file that has it; what cannot be read has no name."""
    files = (
        ConfFile("30-b.conf", '{"name": "rdma", "type": "macvlan"}'),
        ConfFile("20-a.conflist", '{"name": "rdma", "plugins": []}'),
        ConfFile("10-x.conf", "{"),
        ConfFile("11-x.conf", "[]"),
        ConfFile("12-x.conf", '{"name": 5}'),
        ConfFile("05-cluster.conflist", '{"name": "cbr0"}'),
    )
    assert cni_conf.names(files) == ("cbr0", "rdma", "rdma")
    assert cni_conf.text_of(files, "rdma") == files[1].text.encode()
    assert cni_conf.text_of(files, "10-x") is None


@pytest.mark.parametrize(
    "conf", [{**PLUGIN, "meta": META}, {"plugins": [PLUGIN, {"type": "sbr"}], "meta": META}]
)
def test_meta_names_resource_and_addresses(conf):
    """Of a lone plugin and of a list; ranges that would be given by the caller are not missed."""
    ipam = {"ipam": {"type": "host-local"}}
    for one in (conf, {**conf, **ipam}) if "type" in conf else (conf,):
        net = configured(**one)
        assert (net.name, net.kind, net.device) == ("default/rdma", NetworkKind.DEVICE, None)
        assert (net.resource, net.pools) == ("vke.volcengine.com/rdma", ())
        assert net.card_addresses is CardAddresses.REQUIRED


def test_without_meta_it_means_what_it_means_elsewhere():
    macvlan = {"type": "macvlan", "master": "ens2f0"}
    for meta in ({}, {"meta": {}}, {"meta": {"resourceName": "", "ipRangesSource": ""}}):
        net = configured(**macvlan, **meta)
        assert (net.kind, net.device, net.resource) == (NetworkKind.MACVLAN, "ens2f0", None)
        assert net.card_addresses is CardAddresses.STAY


def test_a_configuration_for_a_card_is_for_the_resource_of_blocks():
    """Where it names no other; a link on an interface of the node needs none."""
    assert configured(type="kube-rdma").resource == "vke.volcengine.com/rdma"
    assert configured(type="kube-rdma", meta={"resourceName": "rdma/b"}).resource == "rdma/b"
    assert configured(type="host-device", device="ens2f0").resource is None


def test_the_network_that_needs_no_configuration():
    """A share of the resource as its mode says; addresses of the pool rdma where that is."""
    bare = cni_conf.built_in("train", pool=False)
    assert (bare.network.name, bare.network.kind) == ("train/rdma", NetworkKind.CARD)
    assert bare.network.resource == "vke.volcengine.com/rdma"
    assert (bare.network.card_addresses, bare.ipam.pool_for(0)) == (CardAddresses.MOVE, None)
    pooled = cni_conf.built_in("train", pool=True)
    assert (pooled.network.card_addresses, pooled.ipam.pool_for(0)) == (CardAddresses.MOVE, "rdma")


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b"null"])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(Refused, match="the document is"):
        cni_conf.load("default", "x", text)


def call_of(cni_args=(), **config):
    text = json.dumps({"cniVersion": "1.0.0", "name": "x", "type": "kube-rdma", **config}).encode()
    return Call(
        Verb.ADD, "1.0.0", "x", text, ContainerId("c"), InterfaceName("net1"), args=tuple(cni_args)
    )


def called(cni_args=(), **config):
    return cni_conf.network(call_of(cni_args, **config), "ml/rail", "rdma/a")


def test_what_the_pod_asks_for_is_found_in_all_places():
    """Each address once, with its length where it has one."""
    definition, ask = called(
        cni_args=[("IP", "10.0.0.1,10.0.0.2/24"), ("MAC", "02:00:00:00:00:09")],
        runtimeConfig={"ips": ["10.0.0.1", "fd00::1/64"], "deviceID": "hca-7"},
        deviceID="hca-8",
    )
    assert (definition.network.name, ask.namespace, ask.network) == ("ml/rail", "ml", "rail")
    assert definition.network.resource == "rdma/a"
    assert [(str(one.address), one.prefix) for one in ask.addresses] == [
        ("10.0.0.1", None),
        ("10.0.0.2", 24),
        ("fd00::1", 64),
    ]
    assert (ask.mac, ask.device_id) == ("02:00:00:00:00:09", "hca-7")
    assert ask.interface == "net1"


def test_static_takes_an_address_with_its_length_and_asks_for_one_without():
    """As the plugin static reads CNI_ARGS: with a length it is the interface's own."""
    definition, ask = called(
        cni_args=[("IP", "10.0.0.1,10.0.0.2/24")],
        ipam={"type": "static", "addresses": [{"address": "10.0.1.1/24"}]},
    )
    own = [(str(one.address), one.prefix) for one in definition.network.static]
    assert own == [("10.0.1.1", 24), ("10.0.0.2", 24)]
    assert [(str(one.address), one.prefix) for one in ask.addresses] == [("10.0.0.1", None)]


def test_nothing_is_asked_for_by_a_bare_call():
    _, ask = called()
    assert (ask.addresses, ask.mac, ask.guid, ask.device_id, ask.capabilities) == (
        (),
        None,
        None,
        None,
        (),
    )


def test_the_guid_of_a_call():
    guid = "02:00:0a:00:00:00:00:01"
    mark = {"cni": {"mellanox.infiniband.app": "configured"}}
    _, ask = called(runtimeConfig={"infinibandGUID": guid}, args=mark)
    assert (ask.guid, ask.argued_guid, ask.configured) == (guid, None, True)
    assert not called()[1].configured
    _, ask = called(args={"cni": {"guid": "02:00:0A:00:00:00:00:01"}})
    assert (ask.guid, ask.argued_guid) == (None, guid)


def test_where_the_caller_wants_to_be_told_of_the_device():
    assert cni_conf.device_info_file(call_of(runtimeConfig={"CNIDeviceInfoFile": "/a/b"})) == "/a/b"
    assert cni_conf.device_info_file(call_of()) == ""


def test_what_others_would_do_is_kept_for_the_refusal():
    _, ask = called(runtimeConfig={"portMappings": [{"hostPort": 1}], "io.x/other": 1})
    assert ask.capabilities == (("portMappings", b'[{"hostPort": 1}]'),)


@pytest.mark.parametrize(
    "facts",
    [
        {"runtimeConfig": {"ips": "10.0.0.1"}},
        {"runtimeConfig": []},
        {"args": {"cni": {"ips": [3]}}},
        {"runtimeConfig": {"mac": "x"}},
        {"runtimeConfig": {"CNIDeviceInfoFile": 3}},
        {"args": {"cni": {"guid": 3}}},
        {"cni_args": [("IP", "10.0.0.300")]},
        {"cni_args": [("MAC", "x")]},
    ],
)
def test_nonsense_is_refused_with_its_place(facts):
    with pytest.raises(Refused) as refused:
        called(**facts)
    assert refused.value.where.startswith(("NetworkAttachmentDefinition ml/rail", "CNI_ARGS of"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"type": "macvlan"}', "macvlan"),
        (b'{"plugins": [{"type": "kube-rdma"}, {"type": "tuning"}]}', "kube-rdma"),
        (b'{"plugins": []}', ""),
        (b'{"plugins": {}}', ""),
        (b'{"plugins": [3]}', ""),
        (b"{", ""),
        (b"[]", ""),
        (b"", ""),
    ],
)
def test_the_type_of_a_network_is_that_of_its_first_plugin(text, found):
    assert cni_conf.plugin_type(text) == found


@pytest.mark.parametrize("text", [b"{", b"[]", b"", b"3", b'{"name": 3, "meta": 3, "builtIn": 1}'])
def test_what_is_no_configuration_says_nothing(text):
    """Neither a name nor a resource, and it is not ours."""
    assert (cni_conf.network_name(text), cni_conf.resource(text), cni_conf.is_built_in(text)) == (
        "",
        None,
        False,
    )


def test_what_a_configuration_says_of_itself():
    text = b'{"name": "rail", "builtIn": true, "meta": {"resourceName": "rdma/a"}}'
    assert (cni_conf.network_name(text), cni_conf.resource(text), cni_conf.is_built_in(text)) == (
        "rail",
        "rdma/a",
        True,
    )
    assert cni_conf.resource(b'{"meta": {"resourceName": ""}}') is None


RDMA = {"cniConf": {"name": "rdma"}}


def test_blocks_have_the_interfaces_and_tables_that_cello_gives_them():
    """By their place behind the cluster's network, unless they say it."""
    said = {"deviceConf": {"ifName": "rail0"}, **RDMA}
    assert cni_conf.blocks(json.dumps([RDMA, said])) == (
        cni_conf.PodNetworksBlock("rdma", "eth1", 101),
        cni_conf.PodNetworksBlock("rdma", "rail0", 102),
    )
    first = {"cniConf": {"name": "cello-chainer"}, "master": True}
    assert cni_conf.blocks(json.dumps([first, RDMA])) == (
        cni_conf.PodNetworksBlock("cello-chainer", "eth0", 100),
        cni_conf.PodNetworksBlock("rdma", "eth1", 101),
    )


@pytest.mark.parametrize("text", ["", "{", "{}", "null", "[]", "3"])
def test_what_cello_does_not_understand_has_no_blocks(text):
    assert cni_conf.blocks(text) == ()


@pytest.mark.parametrize("entry", [3, None, {}, {"cniConf": 3}, {"cniConf": {"name": 3}}])
def test_a_block_without_a_name_keeps_its_place(entry):
    assert cni_conf.blocks(json.dumps([entry, RDMA])) == (
        cni_conf.PodNetworksBlock("", "eth1", 101),
        cni_conf.PodNetworksBlock("rdma", "eth2", 102),
    )
