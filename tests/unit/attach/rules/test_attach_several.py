"""Several networks of one pod: whose a destination is, and who answers for which address."""

from ipaddress import ip_address, ip_network

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import plans as attach_plans
from kube_rdma.attach.rules.undo import check
from kube_rdma.model.attach.attachment import NetworkKind, NetworkRoute, Plan
from kube_rdma.model.attach.steps import AddRoute, AddRule, SetSysctl
from tests.kit.pod_networks import SANDBOX, card, network, node, planned, share, wish
from tests.kit.pod_networks import given as leased
from tests.unit.attach.rules.pod_world import World

EVERYWHERE = ip_network("0.0.0.0/0")
FAR = ip_network("10.10.0.0/16")
CARDS = [card(1), card(2), card(3)]
SHARES = [share(each) for each in CARDS]


def lease(number, **facts):
    """An address of a subnet of its own, with its gateway."""
    gateway = f"10.0.{number}.1"
    return leased(number, f"10.0.{number}.7/24", gateway=gateway, **facts)


def routes(plans, table=None):
    """Interface and next hop by destination."""
    steps = [step for plan in plans for step in plan.steps if isinstance(step, AddRoute)]
    own = [step for step in steps if step.table == table]
    return [(str(step.to), step.name, str(step.via)) for step in own]


def run(plans):
    """The pod's world after all of them; CHECK finds nothing in it."""
    world = World(node(*CARDS), CARDS)
    world.run_all(*plans)
    for plan in plans:
        assert check(plan, world.view(plan)) == ()


def test_the_first_of_two_networks_has_the_destination_that_both_route_to():
    """In the main table; each keeps it in its own."""
    of = network(routes=(NetworkRoute(FAR),))
    plans = planned([wish(0, of), wish(1, of)], SHARES[:2], node(*CARDS), [lease(1), lease(2)])
    assert routes(plans) == [("10.10.0.0/16", "net1", "10.0.1.1")]
    assert ("10.10.0.0/16", "net2", "10.0.2.1") in routes(plans, 102)
    run(plans)


def test_two_rails_of_one_pool_share_its_route():
    given = [lease(number, routes=[NetworkRoute(FAR)]) for number in (1, 2)]
    plans = planned([wish(0), wish(1)], SHARES[:2], node(*CARDS), given)
    assert routes(plans) == [("10.10.0.0/16", "net1", "10.0.1.1")]
    run(plans)


@pytest.mark.parametrize("asking", [0, 1])
def test_a_default_route_that_is_asked_for_beats_that_of_a_network(asking):
    of = network(routes=(NetworkRoute(EVERYWHERE),))
    gateway = ip_address(f"10.0.{asking + 1}.1")
    wishes = [wish(number, network() if number == asking else of) for number in range(2)]
    wishes[asking] = wish(asking, default_routes=(gateway,))
    plans = planned(wishes, SHARES[:2], node(*CARDS), [lease(1), lease(2)])
    assert routes(plans) == [("0.0.0.0/0", f"net{asking + 1}", str(gateway))]
    run(plans)


def test_one_network_that_asks_for_what_it_has_anyway():
    of = network(routes=(NetworkRoute(EVERYWHERE),))
    other = ip_address("10.0.1.254")
    plans = planned([wish(0, of, default_routes=(other,))], SHARES[:1], node(*CARDS), [lease(1)])
    assert routes(plans) == [("0.0.0.0/0", "net1", "10.0.1.254")]
    run(plans)


def of_others(*steps):
    """The plan of an interface net2 that other plugins make."""
    return Plan("net2", "default/vlan", None, tuple(steps))


def beside(*wished, called):
    """The plans of these beside that one."""
    placed = pod_nics(wished, SHARES[: len(wished)], node(*CARDS))
    return attach_plans(SANDBOX, placed, [lease(1)], node(*CARDS), (called,))


def test_default_routes_through_interfaces_of_other_plugins_count():
    """One that is asked for there beats that of a network, and a second one is refused."""
    called = of_others(AddRoute("net2", EVERYWHERE, ip_address("10.7.0.1")))
    of = network(routes=(NetworkRoute(EVERYWHERE), NetworkRoute(FAR)))
    assert routes(beside(wish(0, of), called=called)) == [("10.10.0.0/16", "net1", "10.0.1.1")]
    with pytest.raises(Refused, match=r"net2 has a default route of IPv4 already"):
        beside(wish(0, default_routes=(ip_address("10.0.1.1"),)), called=called)


def sysctls(plan):
    """Those of all plans, which ignore router advertisements, left out."""
    values = {step.path: step.value for step in plan.steps if isinstance(step, SetSysctl)}
    assert values.pop(f"net/ipv6/conf/{plan.interface}/accept_ra") == "0"
    return values


def alone_settings(name):
    """What keeps an interface to its own addresses."""
    values = {"arp_ignore": "1", "arp_announce": "2", "rp_filter": "2"}
    return {f"net/ipv4/conf/{name}/{key}": value for key, value in values.items()}


def test_several_interfaces_answer_for_themselves():
    """Whatever their subnets: the network below may be one. Tables follow the annotation."""
    leases = [leased(1, "10.0.0.7/24"), leased(2, "10.0.0.8/24"), leased(3, "10.0.3.9/24")]
    plans = planned([wish(number) for number in range(3)], SHARES, node(*CARDS), leases)
    for plan in plans:
        assert sysctls(plan) == alone_settings(plan.interface)
    rules = [step for plan in plans for step in plan.steps if isinstance(step, AddRule)]
    assert [step.table for step in rules] == [101, 102, 103]


def test_one_interface_is_left_as_it_is():
    (plan,) = planned([wish()], SHARES[:1], node(*CARDS), [lease(1)])
    assert sysctls(plan) == {}
    (plan,) = beside(wish(0), called=of_others())
    assert sysctls(plan) == alone_settings("net1")


def test_an_interface_without_an_address_answers_for_no_other():
    of = network("bare", NetworkKind.MACVLAN)
    plans = planned([wish(0), wish(1, of)], SHARES[:2], node(*CARDS), [lease(1)])
    assert sysctls(plans[1]) == alone_settings("net2")
