"""A network's default route stays in the table of its interface, unless the pod asks for it."""

import json
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.attach.documents import network_definition
from kube_rdma.attach.rules.addresses import default_routes, of_allocations, of_answer
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import plans
from kube_rdma.attach.rules.requests import match_entries
from kube_rdma.model.attach.attachment import NetworkRoute
from kube_rdma.model.attach.cni import CniResult, LinkRoute
from kube_rdma.model.attach.steps import AddRoute
from kube_rdma.model.ipam import AddressAllocation, IPPool, IPRange, Route
from tests.kit.pod_networks import (
    RESOURCE,
    SANDBOX,
    card,
    given,
    network,
    node,
    planned,
    share,
    wish,
)

EVERYWHERE = ip_network("0.0.0.0/0")
GATEWAY = ip_address("10.0.0.1")
HALVES = ("0.0.0.0/1", "128.0.0.0/1")
BLOCKS = {
    "static": {"addresses": [{"address": "10.0.0.7/24", "gateway": "10.0.0.1"}]},
    "host-local": {"subnet": "10.0.0.0/24"},
    "whereabouts": {"range": "10.0.0.0/24", "gateway": "10.0.0.1"},
    "kube-rdma-ipam": {"pool": "training"},
}


def main(plan):
    """Where the pod's main table leads through the interface."""
    return [str(step.to) for step in plan.steps if isinstance(step, AddRoute) and not step.table]


def own(plan):
    """The same of the interface's own table, with the next hop."""
    steps = [step for step in plan.steps if isinstance(step, AddRoute) and step.table == 101]
    return {(str(step.to), str(step.via)) for step in steps}


def written(kind, routes):
    """The network of a document whose ipam block has these routes."""
    block = {"type": kind, **BLOCKS[kind], "routes": [{"dst": to} for to in routes]}
    text = json.dumps({"cniVersion": "1.0.0", "type": "macvlan", "ipam": block}).encode()
    return network_definition.load("default", "net", text, RESOURCE).network


def leased(of, routes=()):
    """What its pool gives, where it has one."""
    return [given(1, "10.0.0.7/24", gateway="10.0.0.1", routes=routes)] if of.pools else []


def one(of, leases, **asked):
    """The plan of a pod's only network."""
    asks = [wish(0, of, **asked).ask]
    (plan,) = planned(match_entries(asks, [of]), [share(card(0))], node(card(0)), leases)
    return plan


@pytest.mark.parametrize("routes", [["0.0.0.0/0"], HALVES], ids=["whole", "halves"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_the_default_route_of_a_document_stays_in_the_interfaces_table(kind, routes):
    """Of each ipam type; other destinations are in the main table too."""
    of = written(kind, [*routes, "10.8.0.0/16"])
    plan = one(of, leased(of))
    assert main(plan) == ["10.8.0.0/16"]
    assert own(plan) >= {(to, "10.0.0.1") for to in routes}


@pytest.mark.parametrize("kind", BLOCKS)
def test_default_route_of_the_entry_puts_it_into_the_main_table(kind):
    """The gateway of the entry counts, and halves of a network would come before it."""
    of = written(kind, ["0.0.0.0/0", *HALVES])
    plan = one(of, leased(of), default_routes=(ip_address("10.0.0.254"),))
    hops = [str(step.via) for step in plan.steps if isinstance(step, AddRoute) and not step.table]
    assert (main(plan), hops) == (["0.0.0.0/0"], ["10.0.0.254"])


@pytest.mark.parametrize("to", ["0.0.0.0/0", *HALVES])
def test_the_default_route_of_a_pool_stays_in_the_interfaces_table(to):
    """Also where `ip translate` has written it for defaultGateway of nv-ipam."""
    pool = IPPool("training", (IPRange(ip_network("10.0.0.0/24"), gateway=GATEWAY),))
    pool = replace(pool, routes=(Route(ip_network(to)),))
    lease = AddressAllocation(
        pool.network, "net1", pool.name, ip_address("10.0.0.7"), pool.ranges[0].subnet, GATEWAY
    )
    plan = one(network(pools=("training",)), [of_allocations("net1", [lease], pool)])
    assert main(plan) == []
    assert (to, "10.0.0.1") in own(plan)


def test_the_default_route_of_another_ipam_plugin_stays_in_the_interfaces_table():
    (nic,) = pod_nics((wish(0),), (share(card(0)),), node(card(0)))
    answer = CniResult(routes=(LinkRoute(EVERYWHERE, GATEWAY),))
    lease = given(1, "10.0.0.7/24", routes=of_answer(nic, answer).routes)
    (plan,) = plans(SANDBOX, (nic,), (lease,), node(card(0)))
    assert main(plan) == []
    assert ("0.0.0.0/0", "10.0.0.1") in own(plan)


@pytest.mark.parametrize("by_pod_networks", [True, False], ids=["block", "claim"])
def test_routes_of_an_entry_ask_for_no_default_route(by_pod_networks):
    """Blocks write traffic.routes.default for that, and parameters of claims defaultRoute."""
    route, leases = NetworkRoute(EVERYWHERE, GATEWAY), [given(1, "10.0.0.7/24")]
    plan = one(network(pools=("p",)), leases, routes=(route,), by_pod_networks=by_pod_networks)
    assert (main(plan), ("0.0.0.0/0", "10.0.0.1") in own(plan)) == ([], True)


def test_without_a_gateway_it_is_on_the_link():
    """As the reference plugins read it; what is sent from other addresses does not go there."""
    of = network(pools=("p",), routes=(NetworkRoute(EVERYWHERE),))
    plan = one(of, [given(1, "10.0.0.7/24")])
    assert (main(plan), own(plan)) == ([], {("10.0.0.0/24", "None"), ("0.0.0.0/0", "None")})


def test_eth0_has_its_default_route_in_the_main_table():
    """A meta-plugin calls kube-rdma for the cluster's own network: the pod has no other."""
    of = network(pools=("p",), routes=(NetworkRoute(EVERYWHERE),))
    asked = wish(0, of, interface="eth0")
    lease = replace(given(1, "10.0.0.7/24", gateway="10.0.0.1"), interface="eth0")
    (plan,) = planned([asked], [share(card(0))], node(card(0)), [lease])
    assert main(plan) == ["0.0.0.0/0"]


@given_by(
    st.lists(
        st.sampled_from(["0.0.0.0/0", *HALVES, "::/0", "::/1", "8000::/1", "10.8.0.0/16"]),
        unique=True,
    ),
    st.sampled_from([(), ("10.0.0.1",), ("fd00::1",), ("10.0.0.1", "fd00::1")]),
)
def test_the_main_table_has_the_default_routes_that_are_asked_for_and_no_others(routes, asked):
    of = network(pools=("p",), routes=tuple(NetworkRoute(ip_network(to)) for to in routes))
    both = [
        *given(1, "10.0.0.7/24", gateway="10.0.0.1").addresses,
        *given(1, "fd00::7/64", gateway="fd00::1").addresses,
    ]
    lease = replace(given(1), addresses=tuple(both))
    plan = one(of, [lease], default_routes=tuple(map(ip_address, asked)))
    wide = [to for to in main(plan) if ip_network(to).prefixlen < 2]
    assert wide == ["0.0.0.0/0" if "." in via else "::/0" for via in asked]


@pytest.mark.parametrize(
    ("kind", "ipam", "is_told"),
    [
        ("macvlan", {"type": "dhcp", "routes": [{"dst": "0.0.0.0/0"}]}, True),
        ("bridge", {"type": "dhcp", "routes": [{"dst": "::/1"}]}, True),
        ("macvlan", {"type": "dhcp", "routes": [{"dst": "10.8.0.0/16"}]}, False),
        ("macvlan", {"type": "dhcp", "routes": [{"dst": True}]}, False),
        ("bridge", {"type": "dhcp"}, False),
        ("bridge", "x", False),
    ],
)
def test_documents_that_only_plugins_read_are_told_of_too(kind, ipam, is_told):
    """Of IPAM plugins, whose answer has the route, and of whole networks of other plugins."""
    text = json.dumps({"cniVersion": "1.0.0", "type": kind, "ipam": ipam}).encode()
    of = network_definition.load("default", "net", text, RESOURCE).network
    subjects = [one.subject for one in default_routes([of], ())]
    assert subjects == (["network/default/net"] if is_told else [])
