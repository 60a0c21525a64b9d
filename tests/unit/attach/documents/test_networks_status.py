"""Status annotations byte for byte: those of Multus, of Cello, and kube-rdma's own."""

import json
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from kube_rdma.attach.documents.network_status import (
    own_attached,
    own_status,
    pod_networks_status,
    status,
)
from kube_rdma.model.attach.attachment import AttachedInterface, InterfaceAddress
from kube_rdma.model.attach.cni import CniInterface, CniResult, Dns, LinkAddress, LinkRoute
from kube_rdma.model.device import PciAddress

CLUSTER = CniResult(
    links=(
        CniInterface("cni0", "0a:00:00:00:00:01"),
        CniInterface("eth0", "0a:00:00:00:00:02", "/run/n", 1450),
    ),
    addresses=(LinkAddress(ip_interface("10.244.1.7/24"), ip_address("10.244.1.1"), 1),),
    routes=(LinkRoute(ip_network("0.0.0.0/0"), ip_address("10.244.1.1")),),
)
VF = AttachedInterface(
    network="default/rdma-net",
    interface="net1",
    mac="02:00:0a:00:00:01",
    mtu=9000,
    addresses=(InterfaceAddress(ip_address("192.168.111.1"), 24, ip_address("192.168.111.254")),),
    rdma_device="mlx5_2",
    gid="0000:0000:0000:0000:0000:ffff:c0a8:6f01",
    gid_index=3,
    card="0000:81:00.2",
    pci=PciAddress("0000:81:00.2"),
    physical=PciAddress("0000:81:00.0"),
)
PLAIN = AttachedInterface("default/b", "net2", "02:00:0a:00:00:02", 1500, (), None)

WRITTEN = """[{
    "name": "cbr0",
    "interface": "eth0",
    "ips": [
        "10.244.1.7"
    ],
    "mac": "0a:00:00:00:00:02",
    "mtu": 1450,
    "default": true,
    "dns": {},
    "gateway": [
        "10.244.1.1"
    ]
},{
    "name": "default/rdma-net",
    "interface": "net1",
    "ips": [
        "192.168.111.1"
    ],
    "mac": "02:00:0a:00:00:01",
    "mtu": 9000,
    "dns": {},
    "device-info": {
        "type": "pci",
        "version": "1.1.0",
        "pci": {
            "pci-address": "0000:81:00.2",
            "rdma-device": "mlx5_2",
            "pf-pci-address": "0000:81:00.0"
        }
    }
},{
    "name": "default/b",
    "interface": "net2",
    "mac": "02:00:0a:00:00:02",
    "mtu": 1500,
    "dns": {}
}]"""


def test_the_whole_annotation_byte_for_byte():
    """The cluster's network first, then ours; what is empty is left out, dns is not."""
    assert status([VF, PLAIN], cluster="cbr0", result=CLUSTER) == WRITTEN


def test_a_new_sandbox_of_a_pod_is_told_anew():
    """The cluster's network has another address, and one of ours is no longer asked for."""
    links = (CniInterface("eth0", "0a:00:00:00:00:09", "/run/m", 1450),)
    new = CniResult(links, (LinkAddress(ip_interface("10.244.1.9/24"), None, 0),))
    first, *others = json.loads(status([PLAIN], "cbr0", new, WRITTEN))
    assert (first["mac"], first["ips"]) == ("0a:00:00:00:00:09", ["10.244.1.9"])
    assert "gateway" not in first
    assert [one["name"] for one in others] == ["default/b"]


def test_a_late_add_leaves_the_entry_of_the_clusters_network():
    """Nobody tells it what the plugins before us made; what is old of ours goes."""
    assert status([VF, PLAIN], "cbr0", None, WRITTEN) == WRITTEN
    assert json.loads(status([PLAIN], "cbr0", None, WRITTEN)) == [
        json.loads(WRITTEN)[0],
        json.loads(WRITTEN)[2],
    ]


def test_a_broken_annotation_is_written_anew():
    """A person's slip does not keep a pod's status away."""
    for before in ("", "null", "{", "[1, null]", "[" * 100_000):
        assert status([PLAIN], before=before) == status([PLAIN])
    assert status([]) == "[]"


def test_dns_and_default_route():
    """Names of the cluster's answer, and the gateway of a default route that the pod asked for."""
    dns = Dns(("10.96.0.10",), "cluster.local", ("svc.cluster.local",), ("ndots:5",))
    routed = AttachedInterface(**{**fields(VF), "default_routes": (ip_address("192.168.111.254"),)})
    first, second = json.loads(status([routed], result=CniResult(dns=dns)))
    assert first["dns"] == {
        "nameservers": ["10.96.0.10"],
        "domain": "cluster.local",
        "search": ["svc.cluster.local"],
        "options": ["ndots:5"],
    }
    assert second["gateway"] == ["192.168.111.254"]


def fields(value):
    return {name: getattr(value, name) for name in value.__struct_fields__}


def test_ours_says_what_rdma_needs():
    """Device, GID and its index, also index 0; nothing of it where there is no RDMA."""
    first = AttachedInterface(**{**fields(VF), "gid_index": 0})
    assert json.loads(own_status([first, PLAIN])) == [
        {
            "name": "default/rdma-net",
            "interface": "net1",
            "ips": ["192.168.111.1/24"],
            "mtu": 9000,
            "card": "0000:81:00.2",
            "rdmaDevice": "mlx5_2",
            "gid": "0000:0000:0000:0000:0000:ffff:c0a8:6f01",
            "gidIndex": 0,
        },
        {"name": "default/b", "interface": "net2", "mtu": 1500},
    ]


def test_every_entry_of_the_cluster_stays_when_an_add_is_late():
    """The network of the cluster may have several interfaces; those of others are written anew."""
    links = (CniInterface("eth0", "", "/run/n"), CniInterface("eth1", "", "/run/n"))
    before = status([VF], "cbr0", CniResult(links))
    names = [one["interface"] for one in json.loads(status([PLAIN], before=before))]
    assert names == ["eth0", "eth1", "net2"]


def test_ours_is_read_as_it_was_written():
    """Without what it does not say: MAC, gateways and PCI addresses."""
    seen = tuple(own_attached(own_status((VF, PLAIN))))
    assert [(one.network, one.interface, one.mtu) for one in seen] == [
        ("default/rdma-net", "net1", 9000),
        ("default/b", "net2", 1500),
    ]
    assert own_status(seen) == own_status((VF, PLAIN))


@pytest.mark.parametrize("interface", [{}, [], None, 7])
def test_what_a_pods_author_writes_into_ours_is_not_kept(interface):
    """Nor does it fail the ADD of what is added to it."""
    before = json.dumps([{"name": "a", "interface": interface}, {"interface": "net1"}])
    assert json.loads(own_status((), before, {"net1"})) == [{"interface": "net1"}]


def test_of_ours_only_what_has_its_form_is_read():
    entries = [{"name": "a"}, {"name": "a", "interface": "net1", "ips": ["x", 1], "mtu": "9"}, 7]
    (seen,) = own_attached(json.dumps(entries))
    assert (seen.addresses, seen.mtu, seen.rdma_device) == ((), 0, None)
    assert not list(own_attached("{"))


CELLO_CLUSTER = CniResult(
    links=(
        CniInterface("cni0", "0a:00:00:00:00:01"),
        CniInterface("eth0", "0a:00:00:00:00:02", "/run/n", 1450),
    ),
    addresses=(LinkAddress(ip_interface("10.244.1.7/24"), ip_address("10.244.1.1"), 1),),
)
CARD = AttachedInterface(
    "kube-system/rdma",
    "eth1",
    "02:00:0a:00:00:01",
    9000,
    (InterfaceAddress(ip_address("192.168.111.1"), 24),),
)
BARE = AttachedInterface("default/rdma", "eth2", "02:00:0a:00:00:02", 9000, ())

CELLO_WRITTEN = """[{
    "cniName": "cello-chainer",
    "deviceInfo": {
        "ifName": "eth0",
        "ips": [
            "10.244.1.7"
        ],
        "mac": "0a:00:00:00:00:02"
    }
},{
    "cniName": "rdma",
    "deviceInfo": {
        "ifName": "eth1",
        "ips": [
            "192.168.111.1"
        ],
        "mac": "02:00:0a:00:00:01"
    }
},{
    "cniName": "rdma",
    "deviceInfo": {
        "ifName": "eth2",
        "mac": "02:00:0a:00:00:02"
    }
}]"""


def test_the_whole_annotation_of_cello_byte_for_byte():
    """The cluster's network first, then the entries by the names that they were asked for by."""
    assert pod_networks_status([CARD, BARE], "cello-chainer", CELLO_CLUSTER) == CELLO_WRITTEN


def test_without_a_result_only_ours_are_told():
    """Nobody said what the cluster's plugins made; a result that is empty is told as one."""
    assert '"eth0"' not in pod_networks_status([CARD], "cbr0", None)
    assert pod_networks_status([], "cbr0", CniResult()) == (
        '[{\n    "cniName": "cbr0",\n    "deviceInfo": {}\n}]'
    )
