"""What a node's condition says of its cards: which are wrong, which are missed, which are not."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.card import Card, Function
from kube_rdma.model.device import PciAddress, PciPosition
from kube_rdma.model.pools import Mode, Pool, PoolSpec
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.absence import VANISHED, Assessment
from kube_rdma.pools.rules.condition import LONGEST, CardsState, condition, next_state
from kube_rdma.pools.rules.node_health import LEAVING, NodeVerdict

SPECS = (PoolSpec("rdma/a", Mode.HCA, "test"),)
PHYSICAL = PciAddress("0000:80:00.0")


def card(number, *reasons, physical=None):
    pci = PciAddress(f"0000:{number:02x}:00.1")
    position = PciPosition(pci, "pci0000:00", (pci,), None, physical_function=physical)
    return Card(pci, (), Function(position, 0x15B3, 0x1017, "mlx5_core"), reasons)


def look(before, *cards, damped=None, specs=SPECS, functions=()):
    judged = damped or cards
    survey = Survey((), None, NamespaceMode.SHARED, functions=functions)
    assessment = Assessment({}, judged, (), None)
    pools = (Pool(specs[0], (), judged),)
    verdict = NodeVerdict(cards, pools, (), assessment, (), (), (), ())
    return next_state(before, verdict, specs, survey)


def test_a_node_without_cards_says_nothing():
    assert condition(look(CardsState())) is None


def test_all_cards_are_well():
    said = condition(look(CardsState(), card(1), card(2)))
    assert (said.status, said.reason) == ("True", "CardsHealthy")
    assert said.message == "2 of 2 cards can be used"


def test_a_card_is_named_with_what_is_wrong_with_it():
    said = condition(look(CardsState(), card(1), card(2, "port 1 is DOWN", "no GID")))
    assert (said.status, said.reason) == ("False", "CardsUnhealthy")
    assert said.message == "1 of 2 cards can be used. 0000:02:00.1: port 1 is DOWN; no GID"


def test_a_card_that_flaps_changes_nothing():
    """Down, held back after its return, down again: one condition, so one patch."""
    ill = look(CardsState(), card(1, "port 1 is DOWN"))
    held = look(ill, card(1), damped=(card(1, "it has just come back"),))
    assert condition(held) == condition(ill) == condition(look(held, card(1, "port 1 is DOWN")))
    assert condition(look(held, card(1))).status == "True"


def test_a_card_that_vanished_is_missed_until_it_is_back():
    """Long after the rules on damping have forgotten it."""
    state = look(CardsState(), card(1), card(2))
    for _ in range(3):
        state = look(state, card(1))
        assert condition(state).message == f"1 of 2 cards can be used. 0000:02:00.1: {VANISHED}"
    assert condition(look(state, card(1), card(2))).status == "True"


def test_a_node_that_lost_its_only_card_still_says_so():
    assert condition(look(look(CardsState(), card(1)))).status == "False"


def test_other_wishes_miss_no_card_of_the_old_ones():
    state = look(CardsState(), card(1), card(2))
    others = (replace(SPECS[0], resource="rdma/b"),)
    assert condition(look(state, card(1), specs=others)).message == "1 of 1 cards can be used"


def test_a_virtual_function_is_missed_only_with_its_physical_one():
    """Somebody wrote sriov_numvfs; or the whole card fell off its bus."""
    position = PciPosition(PHYSICAL, "pci0000:00", (PHYSICAL,), None)
    physical = (Function(position, 0x15B3, 0x1017, "mlx5_core"),)
    virtual = [card(n, physical=PHYSICAL) for n in (1, 2)]
    state = look(CardsState(), *virtual, functions=physical)
    assert condition(look(state, virtual[0], functions=physical)).status == "True"
    assert condition(look(state)).message.startswith("0 of 2 cards can be used")


def test_a_function_that_is_to_be_removed_is_nobody_s_trouble():
    state = look(CardsState(), card(1), card(2, LEAVING))
    assert condition(state).message == "1 of 1 cards can be used"


def test_a_card_that_pods_hold_by_another_resource_is_not_wrong():
    """That stands against giving it away; it is no matter of health."""
    survey = Survey((), None, NamespaceMode.SHARED)
    taken = Pool(SPECS[0], (), (card(1, "pod default/a has it as rdma/old"),))
    verdict = NodeVerdict(
        (card(1),), (taken,), (), Assessment({}, (card(1),), (), None), (), (), (), ()
    )
    assert condition(next_state(CardsState(), verdict, SPECS, survey)).status == "True"


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=200))
def test_a_message_has_a_bound_and_loses_no_count(reasons):
    said = condition(look(CardsState(), *(card(n, why) for n, why in enumerate(reasons))))
    assert len(said.message.encode()) <= LONGEST
    assert said.message.startswith(f"0 of {len(reasons)} cards can be used")
    if all(":" not in why and ". " not in why for why in reasons):
        *_, last = said.message.split(". ")
        rest = int(last.split()[0]) if last.endswith(" more") and ":" not in last else 0
        assert said.message.count(":00.1: ") + rest == len(reasons)
