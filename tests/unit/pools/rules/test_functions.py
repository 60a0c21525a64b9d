"""Virtual functions of a node, and ranges of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import CardId, Netdev, Use
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import (
    Bind,
    FunctionRange,
    FunctionsPlan,
    FunctionsSpec,
    Mode,
    Pool,
    PoolSpec,
    Selector,
    SetFunctions,
)
from kube_rdma.pools.rules.functions import (
    function_counts,
    function_faults,
    held_functions,
    in_question,
    outside,
    plan_functions,
    range_faults,
)
from tests.kit.nodes import device, function, node, physical_with_virtual, position

TOTAL = 8


def wish(count, *, place="policy:1", **more):
    selector = Selector(interfaces=more.pop("interfaces", ("ens1f0",)), **more.pop("chosen", {}))
    return FunctionsSpec((selector,), count, place, **more)


def card(virtual=0, **changes):
    """A physical function with so many virtual ones of 8; the virtual ones' interfaces are down."""
    above, *parts = physical_with_virtual(0x81, virtual)
    above = replace(above, position=replace(above.position, sriov_total=TOTAL), **changes)
    quiet = [
        replace(part, netdevs=tuple(replace(n, up=False, carrier=None) for n in part.netdevs))
        for part in parts
    ]
    return (above, *quiet)


PF = card()[0].position.pci
VF = [part.position.pci for part in card(4)[1:]]


def plan(wishes, functions, *, held=(), ours=(), devices=(), uses=()):
    survey = node(*functions, devices=devices).survey
    known = None if held is None else dict(held)
    return plan_functions(wishes, survey, known, ours, dict(uses))


def refusal(found):
    (error,) = found.refusals
    assert found == FunctionsPlan(refusals=(error,))
    return error.problem


def wait(found):
    (sentence,) = found.waits
    assert {text for _, text in found.waiting} <= {sentence}
    assert found == FunctionsPlan(waits=(sentence,), waiting=found.waiting)
    return sentence


def test_functions_are_made_where_none_are():
    found = plan([wish(8)], card(), held=None)
    assert found == FunctionsPlan((SetFunctions(PF, "ens1f0", 0, 8),))
    assert str(found.acts[0]) == "ens1f0 gets 8 virtual functions in place of 0"


def test_a_card_that_has_the_number_is_left_alone_whoever_made_it():
    assert plan([wish(4)], card(4), held=None) == FunctionsPlan(kept=(PF,))


def test_another_number_of_our_own_is_made_when_nobody_uses_one():
    found = plan([wish(2, autoprobe=False)], card(4), ours=[PF])
    assert found.acts == (SetFunctions(PF, "ens1f0", 4, 2, autoprobe=False),)


def test_functions_of_somebody_else_are_changed_only_by_force():
    assert refusal(plan([wish(2)], card(4))) == (
        "ens1f0 has 4 virtual functions that kube-rdma did not make"
    )
    assert plan([wish(2, force=True)], card(4)).acts


@pytest.mark.parametrize("holder", [PF, VF[3]])
def test_nothing_changes_while_a_pod_holds_one_even_by_force(holder):
    held = {CardId(holder): ("default/a",)}
    assert wait(plan([wish(2, force=True)], card(4), held=held, ours=[PF])) == (
        "ens1f0 stays with 4 virtual functions; 2 (policy:1) wait until these pods have ended: "
        "default/a"
    )


def test_nothing_is_removed_while_nobody_tells_who_holds_it():
    assert "mount its folder pod-resources" in wait(plan([wish(2)], card(4), held=None, ours=[PF]))


def first_virtual(*, number=4, **changes):
    above, first, *others = card(number)
    return (above, replace(first, **changes), *others)


IN_USE = {
    f"{VF[0]} is free: it has the driver vfio-pci": {"driver": "vfio-pci", "netdevs": ()},
    "the node itself is no longer reached through v0": {
        "netdevs": (Netdev("v0", "ether", True, True, default_route=True),)
    },
}


@pytest.mark.parametrize("sentence", IN_USE)
def test_a_function_in_use_is_not_removed_even_by_force(sentence):
    functions = first_virtual(**IN_USE[sentence])
    assert sentence in wait(plan([wish(2, force=True)], functions, ours=[PF]))


SET_UP = first_virtual(netdevs=(Netdev("v0", "ether", True, True),))


def test_an_interface_that_is_merely_up_is_in_nobody_s_way():
    """Also without a look at what it is used for it is, for then nobody can tell."""
    assert plan([wish(2)], SET_UP, ours=[PF], uses={"v0": Use()}).acts
    assert "until v0 is set down" in wait(plan([wish(2)], SET_UP, ours=[PF]))
    assert plan([wish(2, force=True)], SET_UP, ours=[PF]).acts


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (Use(addresses=("10.0.0.1/24",)), "v0 has no longer the address 10.0.0.1/24"),
        (Use(routes=("10.7.0.0/16",)), "no route leads through v0 to 10.7.0.0/16"),
        (Use(above=("bond0",)), "bond0 no longer stands on v0"),
        (
            Use(guests=("02:00:00:00:00:09",)),
            "nothing stands on v0 any more, which takes frames for 02:00:00:00:00:09",
        ),
    ],
)
def test_a_function_that_the_node_uses_is_removed_only_by_force(use, sentence):
    found = wait(plan([wish(2)], SET_UP, ours=[PF], uses={"v0": use}))
    assert f"until {sentence}, or the configuration has" in found
    assert plan([wish(2, force=True)], SET_UP, ours=[PF], uses={"v0": use}).acts


def test_only_functions_that_may_have_to_go_are_asked_about():
    survey = node(*SET_UP).survey
    assert in_question([wish(2)], survey) == {"v0", "ens1f0v1", "ens1f0v2", "ens1f0v3"}
    assert in_question([wish(4)], survey) == in_question([], survey) == frozenset()
    assert function_counts([wish(2), wish(6, interfaces=("ens2f0",))], survey) == {PF: 2}


def test_a_soft_device_on_a_function_is_somebody_s():
    functions = card(4)
    soft = device(0, netdev="ens1f0v0", identity="rxe0@ens1f0v0", position=functions[1].position)
    found = plan([wish(2)], functions, ours=[PF], devices=[soft])
    assert "the soft device rxe0 on ens1f0v0 is removed" in wait(found)


def test_a_card_without_a_driver_waits_for_it():
    (above,) = card(driver=None, netdevs=())
    chosen = {"chosen": {"pci_addresses": (PF,)}, "interfaces": ()}
    assert "until a driver is bound" in wait(plan([wish(8, **chosen)], [above]))


def up(**changes):
    return (Netdev("ens1f0", "ether", **({"up": True, "carrier": True} | changes)),)


@pytest.mark.parametrize(
    "vital",
    [
        {"default_route": True},
        {"default_route": None},
        {"needed": "the node's InternalIP 10.1.0.5"},
        {"needed": "the connection to the API server, from 10.1.0.5"},
    ],
)
def test_a_card_that_the_node_is_reached_through_is_refused_unless_forced(vital):
    """Also when nobody knows the routes, and for an address of the node without one."""
    functions = card(netdevs=up(**vital))
    assert "is, or may be, reached through ens1f0" in refusal(plan([wish(8)], functions))
    assert plan([wish(8, force=True)], functions).acts


def test_a_card_that_is_down_is_refused_and_may_lose_its_functions():
    down = up(up=False, carrier=None)
    assert refusal(plan([wish(8, force=True)], card(netdevs=down))) == (
        "ens1f0 is down, and so would be its virtual functions"
    )
    assert plan([wish(0)], card(4, netdevs=down), ours=[PF]).acts


def test_more_than_the_card_has_is_refused_with_both_numbers():
    assert refusal(plan([wish(9)], card())) == "ens1f0 can have 8 virtual functions, not 9"


def test_a_card_without_sr_iov_is_refused_only_where_it_is_named():
    plain = function(position(0x81), "ens1f0")
    assert refusal(plan([wish(8)], [plain])) == "ens1f0 offers no SR-IOV"
    by_vendor = wish(8, interfaces=(), chosen={"vendors": ("15b3",)})
    sentence = wait(plan([by_vendor], [plain]))
    assert sentence == "no card of this node can have the virtual functions of policy:1"


def test_a_virtual_function_has_none_itself():
    found = plan([wish(8, interfaces=("ens1f0v2",))], card(4))
    assert refusal(found) == "ens1f0v2 is itself a virtual function"


def test_two_wishes_for_one_card_have_to_agree():
    by_vendor = {"interfaces": (), "chosen": {"vendors": ("15b3",)}, "place": "policy:2"}
    assert [act.wanted for act in plan([wish(8), wish(8, **by_vendor)], card()).acts] == [8]
    assert refusal(plan([wish(8), wish(4, **by_vendor)], card())) == (
        "ens1f0 is to have 4 virtual functions here and 8 virtual functions by policy:1"
    )


def test_wishes_that_surely_mean_one_card_differ_before_any_node_is_looked_at():
    assert [error.where for error in function_faults([wish(8), wish(4, place="policy:2")])] == [
        "policy:2"
    ]
    vendors = [wish(n, chosen={"vendors": (v,)}) for n, v in ((8, "15b3"), (4, "8086"))]
    assert function_faults(vendors) == ()


def test_shares_tell_the_cards_that_pods_hold():
    cards = node(*card(2)).cards
    pools = {
        "rdma/all": Pool(PoolSpec("rdma/all", Mode.HCA, "", bind=Bind.POOL), (), cards[2:]),
        "rdma/vf": Pool(PoolSpec("rdma/vf", Mode.SRIOV, ""), (), cards),
        "rdma/one": Pool(PoolSpec("rdma/one", Mode.SHARED, ""), (), cards),
    }
    held = [
        ("rdma/all", "hca-7", cards[2].id),
        ("rdma/vf", VF[0], VF[0]),
        ("rdma/one", f"{PF}-0", PF),
        ("intel.com/vf", VF[0], VF[0]),
        ("rdma/gone", f"{VF[1]}-3", VF[1]),
    ]
    for resource, share, expected in held:
        found = held_functions([Holding("a", "b", "c", resource, (share,))], pools)
        assert found[CardId(expected)] == ("a/b",)


@given(
    count=st.integers(0, TOTAL + 1),
    now=st.integers(0, 4),
    forced=st.booleans(),
    ours=st.booleans(),
    users=st.sets(st.sampled_from([PF, *VF])),
    known=st.booleans(),
)
def test_a_plan_never_takes_a_function_from_a_pod_and_a_second_one_finds_nothing(
    count, now, forced, ours, users, known
):
    functions = card(now)
    held = {CardId(one): ("a/b",) for one in users} if known else None
    there = {one.position.pci for one in functions}
    found = plan([wish(count, force=forced)], functions, held=held, ours=[PF] if ours else [])
    assert len(found.acts) + len(found.waits) + len(found.refusals) + len(found.kept) == 1
    for act in found.acts:
        assert (act.now, act.wanted) == (now, count)
        assert count <= TOTAL
        assert known or now == 0
        assert not known or not users & there
        assert now == 0 or ours or forced
    if found.acts and count <= 4:
        assert plan([wish(count)], card(count)).kept == (PF,)


ADDRESS = "0000:81:00.0"


def pool(*spans, parent="ens1f0", **more):
    one = FunctionRange(parent, spans)
    field = "roots" if ":" in parent else "physical"
    return PoolSpec("rdma/vf", Mode.SRIOV, "p:1", (Selector("p:2", **{field: (one,)}, **more),))


def functions_of(count=4, **chosen):
    return FunctionsSpec((Selector(**(chosen or {"interfaces": ("ens1f0",)})),), count, "p:9")


def test_a_range_beyond_the_count_is_refused_with_both_numbers():
    (fault,) = range_faults([pool((4, 9))], [functions_of()])
    assert str(fault) == (
        "p:2: ens1f0#4-9 asks for virtual function 4, and ens1f0 is to have 4 (0-3) (p:9). "
        'Write ens1f0#0-3, or "count": 10.'
    )
    assert "is to have none" in str(range_faults([pool((0, 0))], [functions_of(0)])[0])


@pytest.mark.parametrize(
    ("wished", "one", "refused"),
    [
        (functions_of(), pool((0, 3)), False),
        (functions_of(), pool((0, 63)), False),
        (functions_of(), pool((0, 1), (6, 6)), True),
        (functions_of(), pool(), False),
        (functions_of(), pool((4, 9), parent="ens2f0"), False),
        (functions_of(), pool((4, 4), auxiliary_types=("sf",)), False),
        (functions_of(pci_addresses=(ADDRESS,)), pool((4, 9), parent=ADDRESS), True),
        (functions_of(interfaces=("ens1f0",), pci_addresses=(ADDRESS,)), pool((4, 9)), False),
        (functions_of(interfaces=("ens1f0",), vendors=("15b3",)), pool((4, 9)), False),
        (
            functions_of(interfaces=("ens1f0",), vendors=("15b3",)),
            pool((4, 9), vendors=("15b3",)),
            True,
        ),
        (functions_of(interfaces=("ens1f0",), drivers=("igb",)), pool((4, 9)), False),
        (functions_of(vendors=("15b3",)), pool((4, 9)), False),
    ],
)
def test_only_what_is_certain_is_refused(wished, one, refused):
    assert bool(range_faults([one], [wished])) is refused


def survey_of(count, total=8, devices=()):
    above, *parts = physical_with_virtual(0x81, count)
    above = replace(above, position=replace(above.position, sriov_total=total))
    return node(above, *parts, devices=devices).survey


@pytest.mark.parametrize(
    ("survey", "spans", "wishes", "expected"),
    [
        (survey_of(4), [(0, 3)], [], None),
        (survey_of(4), [(0, 63)], [], None),
        (survey_of(4), [(4, 7)], [], "function 4 is asked for, and ens1f0 has 4 (0-3), of 8"),
        (survey_of(0), [(0, 3)], [], "function 0 is asked for, and ens1f0 has none, of 8 at most"),
        (survey_of(0), [(0, 3)], [functions_of()], None),
        (survey_of(6), [(4, 7)], [functions_of()], "ens1f0 is to have 4 (0-3), of 8 at most"),
        (
            survey_of(6),
            [(8, 9)],
            [functions_of()],
            "function 8 is asked for, and ens1f0 can have 8 (0-7)",
        ),
        (survey_of(0, None), [(0, 3)], [], "function 0 is asked for, and ens1f0 can have none"),
    ],
)
def test_a_node_says_what_it_has_can_have_or_is_to_have(survey, spans, wishes, expected):
    found = outside([pool(*spans)], survey, wishes)
    assert len(found) == bool(expected)
    assert all(expected in sentence for sentence in found)
    assert all(sentence.startswith("ens1f0#") for sentence in found)
    assert len(outside([pool(*spans, parent=ADDRESS)], survey, wishes)) == len(found)


def test_what_does_not_mean_the_card_is_not_told_of_it():
    survey = survey_of(4)
    assert outside([pool((4, 7), vendors=("8086",))], survey) == ()
    assert outside([pool((4, 7), parent="ens2f0")], survey) == ()
    assert outside([pool((4, 7), parent="ens1f0v0")], survey) == ()


def test_numbers_of_sub_functions_are_what_their_makers_gave_them():
    where = position(0x81)
    sub = device(1, where, auxiliary="mlx5_core.sf.4", subfunction=88)
    survey = node(function(where, "ens1f0"), devices=(sub,)).survey
    assert outside([pool((88, 88))], survey) == ()
    assert outside([pool((88, 88), (4, 4))], survey)
