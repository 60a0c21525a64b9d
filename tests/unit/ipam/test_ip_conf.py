"""ipam blocks of other plugins and our own: what they mean, by the name of their pool too."""

import json
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.ipam import ip_conf, ip_pool
from kube_rdma.ipam.ip_conf import IpamConf
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.attach.cni import Dns, LinkAddress, LinkRoute
from kube_rdma.model.ipam import NicRequest, PerNode, Span

WHEREABOUTS = {
    "type": "whereabouts",
    "range": "10.0.0.7/24",
    "range_start": "10.0.0.10",
    "range_end": "10.0.0.99",
    "exclude": ["10.0.0.16/29", "10.0.0.20/32", "10.9.0.0/16"],
    "ipRanges": [{"range": "fd00::10-fd00::20/64", "exclude": ["fd00::11/128"]}],
    "gateway": "10.0.0.1",
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
    "addresses": [{"address": "172.16.0.5/24", "gateway": "172.16.0.1"}],
    "dns": {"nameservers": ["10.0.0.2"], "search": ["a.b"]},
    "enable_overlapping_ranges": False,
    "network_name": "blue",
    "node_slice_size": "/27",
    "leader_lease_duration": 1500,
    "leader_renew_deadline": 1000,
    "leader_retry_period": 500,
    "sleep_for_race": 0,
    "kubernetes": {"kubeconfig": "/etc/cni/x", "k8s_api_root": "https://x"},
    "configuration_path": "/etc/x",
    "log_file": "/tmp/x.log",
    "log_level": "debug",
    "reconciler_cron_expression": "30 4 * * *",
    "datastore": "kubernetes",
    "etcd_host": "x",
    "etcd_username": "x",
    "etcd_password": "",
    "etcd_key_file": "x",
    "etcd_cert_file": "x",
    "etcd_ca_cert_file": "x",
}


def load(**block):
    return ip_conf.load(of_value({"type": "macvlan", "ipam": block}, "conf"))


def test_every_key_of_whereabouts_is_read():
    """Ranges become a pool, static parts stay, steering keys are told to have no effect."""
    found = load(**WHEREABOUTS)
    pool = found.pool
    v4, v6 = pool.ranges
    assert pool.network == "blue"
    assert (v4.subnet, v4.first, v4.last) == (ip_network("10.0.0.0/24"), None, None)
    assert v4.per_node == PerNode(27, is_one_subnet=True)
    assert (v4.gateway, v6.gateway) == (ip_address("10.0.0.1"), None)
    assert (v6.subnet, v6.first, v6.last) == (
        ip_network("fd00::/64"),
        ip_address("fd00::10"),
        ip_address("fd00::20"),
    )
    assert pool.excludes[0] == Span(ip_address("10.0.0.16"), ip_address("10.0.0.23"))
    assert len(pool.excludes) == 3
    assert found.routes == (LinkRoute(ip_network("0.0.0.0/0"), ip_address("10.0.0.1")),)
    assert found.addresses == (
        LinkAddress(ip_interface("172.16.0.5/24"), ip_address("172.16.0.1")),
    )
    assert found.dns == Dns(("10.0.0.2",), "", ("a.b",), ())
    notes = "\n".join(found.notes)
    steering = [key for key in WHEREABOUTS if f"{key} is not needed" in notes]
    assert len(steering) == 16
    assert v6.per_node is None
    assert "node_slice_size /27 is ignored for fd00::/64" in notes
    assert "enable_overlapping_ranges is ignored" in notes
    assert "exclude 10.9.0.0-10.9.255.255 is outside of every range" in notes


def test_the_pool_is_named_by_what_it_gives():
    """Equal ranges are one pool on every node; written names never change with a release."""
    name = load(type="whereabouts", range="10.0.0.0/24").pool.name
    assert name == "whereabouts-bdacba303e"
    assert load(type="whereabouts", range="10.0.0.9/24", log_level="debug").pool.name == name
    others = (
        {"range": "10.0.0.0/25"},
        {"range": "10.0.0.0/24", "network_name": "blue"},
        {"range": "10.0.0.0/24", "exclude": ["10.0.0.9/32"]},
        {"range": "10.0.0.0/24", "gateway": "10.0.0.1"},
    )
    names = {load(type="whereabouts", **other).pool.name for other in others}
    assert len(names | {name}) == 5


def test_the_made_pool_is_a_good_document():
    """It can be written to the API server, and means the same when it is read."""
    pool = load(**WHEREABOUTS).pool
    again = ip_pool.decode(ip_pool.encode(pool))
    assert [(r.subnet, r.first, r.last) for r in again.ranges] == [
        (r.subnet, r.first, r.last) for r in pool.ranges
    ]


def test_a_subnet_of_host_local_has_a_gateway_where_there_is_room_for_one():
    pools = [load(type="host-local", subnet=f"10.7.0.0/{length}").pool for length in (30, 31)]
    assert [pool.ranges[0].gateway for pool in pools] == [ip_address("10.7.0.1"), None]


@pytest.mark.parametrize("conf", [{}, {"ipam": {}}, {"ipam": {"type": ""}}, {"ipam": None}])
def test_without_ipam_there_is_no_address(conf):
    found = ip_conf.load(of_value(conf, "conf"))
    assert found == IpamConf()
    assert ip_conf.nic_request(found, "net1") is None


def test_a_pool_for_each_rail():
    """A NIC's own, else the one for all, else a refusal that names the rails."""
    both = load(type="kube-rdma-ipam", pool="all", pools={"0": "zero"})
    asks = [ip_conf.nic_request(both, "net1", rail).pool for rail in (0, 1, None)]
    assert asks == ["zero", "all", "all"]
    rails = load(type="kube-rdma-ipam", pools={"0": "zero", "1": "one"})
    with pytest.raises(Refused, match=r"no pool for rail 2.*which has 0, 1"):
        ip_conf.nic_request(rails, "net1", 2)


def test_addresses_by_annotation_and_by_argument():
    """With or without length, from both places, each once; then one of each family."""
    found = ip_conf.requested_addresses(
        [("IgnoreUnknown", "1"), ("IP", "10.0.0.5/24,fd00::5")], ["10.0.0.5"], "pod a/b"
    )
    assert found == (ip_address("10.0.0.5"), ip_address("fd00::5"))
    conf = load(type="kube-rdma-ipam", pool="all")
    assert ip_conf.nic_request(conf, "net1", None, found) == NicRequest("net1", "all", None, found)


def test_wrong_wishes_for_addresses():
    """No address, two of a family, and one where there is no pool."""
    with pytest.raises(Refused, match=r'pod a/b: "10\.0\.0" is not an IP address'):
        ip_conf.requested_addresses([("IP", "10.0.0")], (), "pod a/b")
    for wrong in ("fe80::1%eth0", "10.0.0.5/33"):
        with pytest.raises(Refused, match=wrong):
            ip_conf.requested_addresses((), [wrong], "pod a/b")
    two = (ip_address("10.0.0.5"), ip_address("10.0.0.6"))
    with pytest.raises(Refused, match="one of each family is given"):
        ip_conf.nic_request(load(type="kube-rdma-ipam", pool="all"), "net1", None, two)
    with pytest.raises(Refused, match=r"ipam names no pool to take it from"):
        ip_conf.nic_request(load(type="static"), "net1", None, two[:1])


KEYS = [*WHEREABOUTS, "subnet", "rangeStart", "ranges", "dst", "gw", "address", "pool", "pools"]
TEXTS = ["10.0.0.64", "fd00::/64", "10.0.0.0/24", "10.0.0.5-10.0.0.9/24", "::1%e", "", "a"]
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(TEXTS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=8,
)
TYPES = st.sampled_from(["whereabouts", "host-local", "static", "kube-rdma-ipam"])


@given(TYPES, st.dictionaries(st.sampled_from(KEYS), GARBAGE, max_size=5))
def test_garbage_means_something_or_is_refused(kind, block):
    """Never a crash; and what is accepted makes a pool that the API server takes too."""
    try:
        found = load(**{**block, "type": kind})
    except Refused:
        return
    if found.pool:
        json.loads(ip_pool.encode(found.pool))
