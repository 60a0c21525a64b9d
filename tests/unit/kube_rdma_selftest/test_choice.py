"""The hardware self-test's plans: what is tried where, what never is, what counts as changed."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.model.attach.steps import AwaitGid, MakeRdma, MoveRdma, TakeLink
from kube_rdma.model.pools import SetFunction
from kube_rdma.model.survey import NamespaceMode
from kube_rdma_selftest.choice import differences, trials
from kube_rdma_selftest.trial import SelftestRequest, SelftestScene, Trial, TrialKind, UntriedCard
from tests.kit.pod_networks import card, node, place

CARD, VIRTUAL = card(1), card(2, virtual=True)
WIDE = card(3, link_type="infiniband")
ADDRESS = (ip_address("10.0.0.7"), 24)


def scene(*cards, mode=NamespaceMode.SHARED, **facts):
    """The node of these cards, its virtual functions as a driver makes them."""
    network = node(*cards, mode=mode, **facts)
    functions = tuple((one.virtual, one.settings) for one in network.links if one.virtual)
    return SelftestScene(cards, network, functions)


def tried(where, *names, kinds=()):
    """What is tried, by kind."""
    found = trials(where, SelftestRequest(names, kinds))
    return {one.kind: one for one in found if isinstance(one, Trial)}


def reasons(where, *names, kinds=()):
    found = trials(where, SelftestRequest(names, kinds))
    return [one.reason for one in found if isinstance(one, UntriedCard)]


def types(trial):
    return {type(step) for step in trial.plan.steps}


def with_links(where, **facts):
    links = tuple(replace(link, **facts) for link in where.network.links)
    return replace(where, network=replace(where.network, links=links))


@pytest.mark.parametrize(
    ("of", "alone", "named"),
    [
        (CARD, ["macvlan", "ipvlan"], ["macvlan", "ipvlan", "take"]),
        (WIDE, ["ipoib"], ["ipoib", "take"]),
        (VIRTUAL, ["take", "function"], ["take", "function"]),
    ],
    ids=["ethernet", "infiniband", "function"],
)
def test_what_fits_a_card_is_tried_and_it_moves_itself_only_when_named(of, alone, named):
    assert list(tried(scene(of))) == alone
    assert list(tried(scene(of), of.function.netdevs[0].name)) == named


@pytest.mark.parametrize("name", ["mlx5_1", "ens1f0", "0000:11:00.0", "ENS1F0"])
def test_a_card_has_several_names(name):
    (trial, *_) = tried(scene(CARD, VIRTUAL), name).values()
    assert trial.card is CARD


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(Refused, match="no card mlx5_9; it has mlx5_1, mlx5_2"):
        tried(scene(CARD, VIRTUAL), "mlx5_9")


def test_a_card_without_rdma_is_tried_only_when_named():
    bare = card(4, rdma=False)
    with pytest.raises(Refused, match="no RDMA card"):
        tried(scene(bare))
    assert list(tried(scene(bare), "ens4f0")) == ["macvlan", "ipvlan", "take"]


@given(
    st.lists(st.sampled_from([CARD, VIRTUAL, WIDE]), min_size=1, unique=True),
    st.sampled_from([(), ("ens1f0", "ens2f0", "ens3f0")]),
    st.lists(st.sampled_from(list(TrialKind)), unique=True),
    st.sampled_from(["own", "above", "unknown"]),
    st.sampled_from(list(NamespaceMode)),
)
def test_what_the_node_is_reached_through_is_never_tried(cards, names, kinds, how, mode):
    """By its own route, by that of a bridge over a bond over it, or where nobody knows."""
    where = scene(*cards, mode=mode)
    links = [link.name for link in where.network.links]
    if how == "own":
        where = replace(where, routed=tuple(links))
    elif how == "above":
        above = tuple((name, ("bond0",)) for name in links)
        where = replace(where, above=(*above, ("bond0", ("br0",))), routed=("br0",))
    else:
        where = replace(where, cards=tuple(map(unknown, where.cards)))
    chosen = tuple(name for name in names if name in links)
    found = trials(where, SelftestRequest(chosen, tuple(kinds)))
    assert found
    assert all(isinstance(one, UntriedCard) and one.kind is None for one in found)


def unknown(of):
    """The card, whose default routes nobody knows."""
    (netdev,) = of.function.netdevs
    function = replace(of.function, netdevs=(replace(netdev, default_route=None),))
    return replace(of, function=function)


def test_a_function_with_an_address_moves_only_when_named():
    where = with_links(scene(VIRTUAL), addresses=(ADDRESS,))
    assert tried(where) == {}
    assert "ens2f0 has 10.0.0.7/24" in reasons(where)[0]
    take = tried(where, "ens2f0")[TrialKind.TAKE]
    (moved,) = [step for step in take.plan.steps if isinstance(step, TakeLink)]
    assert moved.addresses == (ADDRESS,)


def test_what_something_stands_on_does_not_move_though_it_is_named():
    where = replace(scene(VIRTUAL), above=(("ens2f0", ("bond0",)),))
    assert tried(where, "ens2f0") == {}
    assert reasons(where, "ens2f0")[0].startswith("bond0 stands on ens2f0")


def test_a_card_in_a_pod_is_left_out():
    where = scene(VIRTUAL)
    gone = replace(where, network=replace(where.network, links=()))
    assert "no interface on the node" in reasons(gone)[0]


def test_what_the_agent_refuses_is_left_out_with_its_words():
    assert "ens1f0 is down" in reasons(scene(CARD, up=False))[0]
    exclusive = scene(CARD, mode=NamespaceMode.EXCLUSIVE)
    assert "in RDMA namespace mode exclusive no pod sees it" in reasons(exclusive)[0]
    assert "is InfiniBand" in reasons(scene(WIDE), kinds=(TrialKind.MACVLAN,))[0]
    assert (
        "sriov is for virtual functions"
        in reasons(scene(CARD), "ens1f0", kinds=[TrialKind.FUNCTION])[0]
    )


def test_the_rdma_device_is_made_moved_or_waited_for():
    soft = tried(scene(card(1, soft=True)))[TrialKind.MACVLAN]
    assert types(soft) >= {MakeRdma, AwaitGid}
    assert types(tried(scene(CARD))[TrialKind.MACVLAN]) >= {AwaitGid}
    moved = tried(scene(VIRTUAL, mode=NamespaceMode.EXCLUSIVE))[TrialKind.TAKE]
    assert types(moved) >= {TakeLink, MoveRdma, AwaitGid}


def test_ipv6_is_tried_where_the_node_has_it():
    """Its loopback has an address then."""
    where = scene(VIRTUAL)
    (link,) = where.network.links
    lo = replace(link, index=1, name="lo", pci=None, addresses=((ip_address("::1"), 128),))
    with_lo = replace(where, network=replace(where.network, links=(link, lo)))
    for each, versions in ((where, {4}), (with_lo, {4, 6})):
        found = tried(each)[TrialKind.FUNCTION].plan.addresses
        assert {one.address.version for one in found} == versions


def test_a_function_is_set_to_what_it_is_not():
    """VLAN, spoof check and a MAC of its own, which no other function has."""
    other = card(5, virtual=True)
    found = trials(scene(VIRTUAL, other), SelftestRequest(kinds=(TrialKind.FUNCTION,)))
    macs = set()
    for trial in found:
        first, second = (one for one in trial.plan.steps if isinstance(one, SetFunction))
        assert (first.wanted.vlan, first.wanted.spoof_check) == (100, False)
        assert (first.previous.vlan, first.previous.spoof_check) == (0, True)
        macs.add(second.wanted.mac)
    assert len(macs) == 2


def changed(trial, before, after):
    return differences(trial, before, after)


def test_the_same_node_has_no_differences_and_indexes_count_for_nothing():
    where = scene(VIRTUAL)
    for trial in tried(where).values():
        assert changed(trial, where, where) == ()
        assert changed(trial, where, with_links(where, index=77)) == ()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"mtu": 1400}, "the MTU of ens2f0 was 9000, and is 1400"),
        ({"mac": "02:00:00:00:00:99"}, "the MAC of ens2f0 was 02:00:00:00:00:12, and is"),
        ({"up": False}, "the state of ens2f0 was up, and is down"),
        ({"addresses": (ADDRESS,)}, "the addresses of ens2f0 was none, and is 10.0.0.7/24"),
        ({"name": "eth7"}, "the interface ens2f0 was there, and is gone"),
    ],
)
def test_what_a_link_has_not_got_back_is_told(facts, said):
    where = scene(VIRTUAL)
    trial = tried(where)[TrialKind.TAKE]
    assert said in "\n".join(changed(trial, where, with_links(where, **facts)))


def test_settings_that_stay_and_devices_that_stay_or_go_are_told():
    where = scene(VIRTUAL)
    trial = tried(where)[TrialKind.FUNCTION]
    ((_, settings),) = where.functions
    tagged = replace(where, functions=((place(VIRTUAL), replace(settings, vlan=100)),))
    assert changed(trial, where, tagged) == (
        "the vlan of virtual function 0 of ens18pf was 0, and is 100",
    )
    lost = replace(where, cards=(replace(VIRTUAL, devices=()),))
    assert "the RDMA device of 0000:12:00.1 was there, and is gone" in changed(trial, where, lost)
    soft = scene(card(1, soft=True))
    macvlan = tried(soft)[TrialKind.MACVLAN]
    (made,) = [one.name for one in macvlan.plan.steps if isinstance(one, MakeRdma)]
    assert changed(macvlan, soft, replace(soft, rdma=(made,))) == (
        f"the RDMA device {made} is still there",
    )


def test_a_driver_that_tells_the_function_s_own_mac_has_changed_nothing():
    """As igb does after an administrative one was set."""
    where = scene(VIRTUAL)
    ((_, settings),) = where.functions
    own = where.network.links[0].mac
    told = replace(where, functions=((place(VIRTUAL), replace(settings, mac=own)),))
    assert changed(tried(where)[TrialKind.FUNCTION], where, told) == ()
