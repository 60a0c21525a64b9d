"""What a pod that asks by blocks is told, byte for byte as Cello writes it."""

from ipaddress import ip_address, ip_interface

from kube_rdma.attach.documents.network_status import pod_networks_status as status
from kube_rdma.model.attach.attachment import Attached, InterfaceAddress
from kube_rdma.model.attach.cni import CniInterface, CniResult, LinkAddress

CLUSTER = CniResult(
    links=(
        CniInterface("cni0", "0a:00:00:00:00:01"),
        CniInterface("eth0", "0a:00:00:00:00:02", "/run/n", 1450),
    ),
    addresses=(LinkAddress(ip_interface("10.244.1.7/24"), ip_address("10.244.1.1"), 1),),
)
CARD = Attached(
    "kube-system/rdma",
    "eth1",
    "02:00:0a:00:00:01",
    9000,
    (InterfaceAddress(ip_address("192.168.111.1"), 24),),
)
BARE = Attached("default/rdma", "eth2", "02:00:0a:00:00:02", 9000, ())

WRITTEN = """[{
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


def test_the_whole_annotation_byte_for_byte():
    """The cluster's network first, then the entries by the names that they were asked for by."""
    assert status([CARD, BARE], "cello-chainer", CLUSTER) == WRITTEN


def test_without_a_result_only_ours_are_told():
    """Nobody said what the cluster's plugins made; a result that is empty is told as one."""
    assert '"eth0"' not in status([CARD], "cbr0", None)
    assert status([], "cbr0", CniResult()) == (
        '[{\n    "cniName": "cbr0",\n    "deviceInfo": {}\n}]'
    )
