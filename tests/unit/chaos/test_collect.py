"""What a node printed becomes what the audit reads; a torn record is named, and hides no other."""

import json
from base64 import b64encode

from chaos.collect import CLAIMS_CHECKPOINT, node_of, sections, spread
from chaos.seen import KubeletClaim, KubeletShare, SeenLink, SeenRule

CARD = {"ifindex": 5, "ifname": "ens2f0", "flags": ["UP"]}
LINK = {
    "ifname": "net1",
    "link_index": 5,
    "link_netnsid": 0,
    "flags": ["UP"],
    "linkinfo": {"info_kind": "macvlan"},
    "addr_info": [
        {"local": "10.77.0.4", "prefixlen": 24, "scope": "global"},
        {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
    ],
}
RULES = [
    {"priority": 0, "src": "all", "table": "local"},
    {"priority": 20000, "src": "10.77.0.4", "table": "101"},
]
ROUTES = [
    {"dst": "default", "dev": "eth0", "gateway": "10.89.0.1"},
    {"dst": "10.77.0.0/24", "dev": "net1", "protocol": "kernel"},
]
PAIR = {"ifname": "eth0", "link_index": 5, "flags": ["UP"], "linkinfo": {"info_kind": "veth"}}
VERBS = [
    {"ifname": "rxe0", "port": 1, "state": "ACTIVE"},
    {"ifname": "rxe-a", "port": 1, "state": "ACTIVE", "netdev": "net1", "netdev_index": 3},
]
BOOKING = {
    "container": "c",
    "pod": "uid",
    "leases": [
        {"address": "10.77.0.4", "resting": False},
        {"address": "10.77.0.5", "resting": True},
    ],
}
ENTRIES = [
    {"PodUID": "uid", "DeviceIDs": {"0": ["card-0"]}, "AllocResp": "late"},
    {"PodUID": "old", "DeviceIDs": {"0": ["card-1"]}, "AllocResp": "early"},
]
CLAIMS = {"ClaimInfoStateList": [{"ClaimUID": "claim", "PodUIDs": {"uid": {}}}]}
ANSWERS = {"late": b"2\n0kube-rdma.io/hca=card-0-n", "early": b"/usr/share/kube-rdma/bin"}


def checkpoint():
    """As the kubelet writes it."""
    entries = [
        entry | {"AllocResp": b64encode(ANSWERS[entry["AllocResp"]]).decode()} for entry in ENTRIES
    ]
    return json.dumps({"Data": {"PodDeviceEntries": entries}})


def printed():
    """What look.sh prints of a node with one pod."""
    files = {
        "/var/lib/kube-rdma/addresses/c.json": json.dumps({"kind": "booking", "data": BOOKING}),
        "/var/lib/kube-rdma/addresses/torn.json": '{"kind": "boo',
        "/var/lib/kube-rdma/addresses/.lock": "17",
        "/run/cdi/kube-rdma-c-n.json": "{}",
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": checkpoint(),
        f"/var/lib/kubelet/{CLAIMS_CHECKPOINT}": json.dumps({"Data": json.dumps(CLAIMS)}),
    }
    lines = ["@@ netns - 1", json.dumps([{}, CARD]), "@@ rules", json.dumps(RULES[:1])]
    lines += ["@@ routes", "[]", "@@ verbs", "@@ netns cni-a 2", json.dumps([LINK, PAIR])]
    lines += ["@@ rules", json.dumps(RULES), "@@ routes", json.dumps(ROUTES)]
    lines += ["@@ verbs", json.dumps(VERBS)]
    lines += ["@@ netns cni-broken 3", "@@ rules", "@@ routes", "@@ verbs"]
    lines += ["@@ processes", "2 uid", "1 uid", "@@ rdma", "mlx5_0", "@@ devices", "uverbs0"]
    lines += ["@@ settings", "claims", "claims/c", "@@ chained"]
    lines += [line for path, text in files.items() for line in (f"@@ file {path}", text)]
    return "\n".join(lines)


def test_a_node_is_read_from_what_it_printed():
    node = node_of("node-1", printed())
    own, space, broken = node.namespaces
    assert (own.name, own.pods, own.links, own.rules) == ("", (), (SeenLink("ens2f0"),), ())
    assert space.pods == ("uid",)
    assert space.links == (
        SeenLink("net1", "macvlan", True, "", ("10.77.0.4/24",), "ens2f0"),
        SeenLink("eth0", "veth"),
    )
    assert space.rdma == (("rxe-a", "net1"),)
    assert space.rules == (SeenRule("10.77.0.4", "101"),)
    assert space.routes == ("route default dev eth0 via 10.89.0.1 in main",)
    assert (broken.name, broken.links) == ("cni-broken", ())
    (booking,) = node.bookings
    assert booking.addresses == ("10.77.0.4",)
    assert node.unreadable == ("addresses/torn.json",)
    assert node.kubelet == (KubeletShare("uid", "card-0"), KubeletShare("old", "card-1", False))
    assert node.kubelet_claims == (KubeletClaim("claim", ("uid",)),)
    assert [file.name for file in node.cdi] == ["kube-rdma-c-n.json"]
    assert node.settings == ("claims/c",)
    assert not node.is_chained


def test_a_file_belongs_to_the_section_that_names_it():
    assert list(sections("@@ a b\none\n\ntwo\n@@ c\n")) == [
        (["a", "b"], ["one", "two"]),
        (["c"], []),
    ]


def test_a_span_is_every_address_of_it():
    assert list(spread("10.0.0.7")) == ["10.0.0.7"]
    assert list(spread("10.0.0.254-10.0.1.1")) == [
        "10.0.0.254",
        "10.0.0.255",
        "10.0.1.0",
        "10.0.1.1",
    ]
