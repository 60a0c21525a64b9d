"""A range of virtual functions that chooses nothing is said, where it is certain refused."""

from __future__ import annotations

import pytest

from kube_base.frozen import replace
from kube_rdma.model.pools import FunctionRange, FunctionsSpec, Mode, PoolSpec, Selector
from kube_rdma.pools.rules.functions import outside, range_faults
from tests.kit.nodes import device, function, node, physical_with_virtual, seat

ADDRESS = "0000:81:00.0"


def pool(*spans, parent="ens1f0", **more):
    one = FunctionRange(parent, spans)
    field = "roots" if ":" in parent else "physical"
    return PoolSpec("rdma/vf", Mode.SRIOV, "p:1", (Selector("p:2", **{field: (one,)}, **more),))


def wish(count=4, **chosen):
    return FunctionsSpec((Selector(**(chosen or {"interfaces": ("ens1f0",)})),), count, "p:9")


def test_a_range_beyond_the_count_is_refused_with_both_numbers():
    (fault,) = range_faults([pool((4, 9))], [wish()])
    assert str(fault) == (
        "p:2: ens1f0#4-9 asks for virtual function 4, and ens1f0 is to have 4 (0-3) (p:9). "
        'Write ens1f0#0-3, or "count": 10.'
    )
    assert "is to have none" in str(range_faults([pool((0, 0))], [wish(0)])[0])


@pytest.mark.parametrize(
    ("wished", "one", "refused"),
    [
        (wish(), pool((0, 3)), False),
        (wish(), pool((0, 63)), False),
        (wish(), pool((0, 1), (6, 6)), True),
        (wish(), pool(), False),
        (wish(), pool((4, 9), parent="ens2f0"), False),
        (wish(), pool((4, 4), auxiliary_types=("sf",)), False),
        (wish(pci_addresses=(ADDRESS,)), pool((4, 9), parent=ADDRESS), True),
        (wish(interfaces=("ens1f0",), pci_addresses=(ADDRESS,)), pool((4, 9)), False),
        (wish(interfaces=("ens1f0",), vendors=("15b3",)), pool((4, 9)), False),
        (
            wish(interfaces=("ens1f0",), vendors=("15b3",)),
            pool((4, 9), vendors=("15b3",)),
            True,
        ),
        (wish(interfaces=("ens1f0",), drivers=("igb",)), pool((4, 9)), False),
        (wish(vendors=("15b3",)), pool((4, 9)), False),
    ],
)
def test_only_what_is_certain_is_refused(wished, one, refused):
    assert bool(range_faults([one], [wished])) is refused


def survey_of(count, total=8, devices=()):
    above, *parts = physical_with_virtual(0x81, count)
    above = replace(above, seat=replace(above.seat, sriov_total=total))
    return node(above, *parts, devices=devices).survey


@pytest.mark.parametrize(
    ("survey", "spans", "wishes", "expected"),
    [
        (survey_of(4), [(0, 3)], [], None),
        (survey_of(4), [(0, 63)], [], None),
        (survey_of(4), [(4, 7)], [], "function 4 is asked for, and ens1f0 has 4 (0-3), of 8"),
        (survey_of(0), [(0, 3)], [], "function 0 is asked for, and ens1f0 has none, of 8 at most"),
        (survey_of(0), [(0, 3)], [wish()], None),
        (survey_of(6), [(4, 7)], [wish()], "ens1f0 is to have 4 (0-3), of 8 at most"),
        (survey_of(6), [(8, 9)], [wish()], "function 8 is asked for, and ens1f0 can have 8 (0-7)"),
        (survey_of(0, None), [(0, 3)], [], "function 0 is asked for, and ens1f0 can have none"),
    ],
)
def test_a_node_says_what_it_has_can_have_or_is_to_have(survey, spans, wishes, expected):
    found = outside([pool(*spans)], survey, wishes)
    assert len(found) == bool(expected)
    assert all(expected in sentence for sentence in found)
    assert all(sentence.startswith("ens1f0#") for sentence in found)
    by_address = outside([pool(*spans, parent=ADDRESS)], survey, wishes)
    assert len(by_address) == len(found)


def test_what_does_not_mean_the_card_is_not_told_of_it():
    survey = survey_of(4)
    assert outside([pool((4, 7), vendors=("8086",))], survey) == ()
    assert outside([pool((4, 7), parent="ens2f0")], survey) == ()
    assert outside([pool((4, 7), parent="ens1f0v0")], survey) == ()


def test_numbers_of_sub_functions_are_what_their_makers_gave_them():
    where = seat(0x81)
    sub = device(1, where, auxiliary="mlx5_core.sf.4", subfunction=88)
    survey = node(function(where, "ens1f0"), devices=(sub,)).survey
    assert outside([pool((88, 88))], survey) == ()
    assert outside([pool((88, 88), (4, 4))], survey)
