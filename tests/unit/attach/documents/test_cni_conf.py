"""Networks that are named by CNI configurations of the node, and the one that needs none."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.documents.cni_conf import built_in, load, names, text_of
from kube_rdma.model.attach.attachment import CardAddresses, NetworkKind
from kube_rdma.model.attach.cni import ConfFile

PLUGIN = {"type": "host-device", "capabilities": {"ipRanges": True, "deviceID": True}}
META = {"resourceName": "vke.volcengine.com/rdma", "ipRangesSource": "netDeviceSelf"}


def network(**conf):
    found = load("default", "rdma", json.dumps({"name": "rdma", **conf}).encode())
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
    assert names(files) == ("cbr0", "rdma", "rdma")
    assert text_of(files, "rdma") == files[1].text.encode()
    assert text_of(files, "10-x") is None


@pytest.mark.parametrize(
    "conf", [{**PLUGIN, "meta": META}, {"plugins": [PLUGIN, {"type": "sbr"}], "meta": META}]
)
def test_meta_names_resource_and_addresses(conf):
    """Of a lone plugin and of a list; ranges that would be given by the caller are not missed."""
    ipam = {"ipam": {"type": "host-local"}}
    for one in (conf, {**conf, **ipam}) if "type" in conf else (conf,):
        net = network(**one)
        assert (net.name, net.kind, net.device) == ("default/rdma", NetworkKind.DEVICE, None)
        assert (net.resource, net.pools) == ("vke.volcengine.com/rdma", ())
        assert net.card_addresses is CardAddresses.REQUIRED


def test_without_meta_it_means_what_it_means_elsewhere():
    """An empty block is none."""
    macvlan = {"type": "macvlan", "master": "ens2f0"}
    for meta in ({}, {"meta": {}}, {"meta": {"resourceName": "", "ipRangesSource": ""}}):
        net = network(**macvlan, **meta)
        assert (net.kind, net.master, net.resource) == (NetworkKind.MACVLAN, "ens2f0", None)
        assert net.card_addresses is CardAddresses.STAY


def test_a_configuration_for_a_card_is_for_the_resource_of_blocks():
    """Where it names no other; a link on an interface of the node needs none."""
    assert network(type="kube-rdma").resource == "vke.volcengine.com/rdma"
    assert network(type="kube-rdma", meta={"resourceName": "rdma/b"}).resource == "rdma/b"
    assert network(type="host-device", device="ens2f0").resource is None


def test_the_network_that_needs_no_configuration():
    """A share of the resource as its mode says; addresses of the pool rdma where that is."""
    bare = built_in("train", pool=False)
    assert (bare.network.name, bare.network.kind) == ("train/rdma", NetworkKind.CARD)
    assert bare.network.resource == "vke.volcengine.com/rdma"
    assert (bare.network.card_addresses, bare.ipam.pool_for(0)) == (CardAddresses.MOVE, None)
    pooled = built_in("train", pool=True)
    assert (pooled.network.card_addresses, pooled.ipam.pool_for(0)) == (CardAddresses.MOVE, "rdma")


@pytest.mark.parametrize("text", [b"", b"[]", b"7", b"null"])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(Refused, match="the document is"):
        load("default", "x", text)
