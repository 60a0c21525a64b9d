"""What is told of a card's health: bad news at once, good news when it has lasted."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.device import CharKind, PciAddress, PodLink
from kube_rdma.pools.rules import absence
from tests.kit.nodes import DOWN, hard_card

GOOD = hard_card(0x81)
BAD = replace(GOOD, reasons=(DOWN,))
GONE = None
STATES = st.sampled_from([GOOD, BAD, GONE])
# Mostly the pace of a link that flaps, now and then a pause that everything forgets.
PAUSES = st.one_of(st.floats(0.01, 3), st.floats(0.01, 100))
HISTORIES = st.lists(st.tuples(PAUSES, STATES), min_size=1, max_size=60)


class Teller:
    """Assesses one card and looks again when it is told to; `reported` has every change with time.

    `now` starts at a time that is no beginning of anything.
    """

    def __init__(self):
        self.now = 1000.0
        self.health = {}
        self.reported = []
        self.last = None

    def look(self, card):
        self.last = absence.assess(self.health, [card] if card else [], self.now)
        self.health = self.last.health
        self.reported += [(self.now, change) for change in self.last.changes]
        return self.last

    def stay(self, card, seconds):
        end = self.now + seconds
        while self.last.again is not None and self.now + self.last.again <= end:
            self.now += self.last.again
            self.look(card)
        self.now = end

    def live(self, history):
        state = GONE
        for pause, after in history:
            if self.last:
                self.stay(state, pause)
            state = after
            self.look(state)
        return state


@given(HISTORIES)
def test_what_is_told_follows_what_is_true(history):
    teller = Teller()
    for pause, state in history:
        teller.now += pause
        found = teller.look(state)
        for judged in found.cards:
            assert judged.usable is found.health[GOOD.id].reported
            assert replace(judged, reasons=()) == GOOD
            assert state is GOOD or judged.reasons == (DOWN,)
        if state is not GOOD:
            assert not any(health.reported for health in found.health.values())
        assert found.again is None or 0 < found.again <= absence.LONGEST_HOLD


@given(HISTORIES)
def test_changes_take_turns(history):
    teller = Teller()
    teller.live(history)
    for (at, was), (then, now) in pairwise(teller.reported):
        forgotten = then - at >= absence.WINDOW and not now.healthy
        assert was.healthy is not now.healthy or forgotten
    assert all(change.healthy is not bool(change.reasons) for _, change in teller.reported)


@given(HISTORIES)
def test_a_card_that_stays_good_is_healthy_in_time(history):
    teller = Teller()
    teller.live(history)
    teller.look(GOOD)
    teller.stay(GOOD, absence.LONGEST_HOLD + 0.001)
    assert teller.health[GOOD.id].reported


@given(st.lists(st.tuples(st.floats(0.01, 5), STATES), min_size=20, max_size=200))
def test_a_card_that_flaps_is_not_told_all_the_time(history):
    teller = Teller()
    teller.live(history)
    times = [at for at, _ in teller.reported]
    for start in times:
        assert sum(start <= at < start + absence.WINDOW for at in times) <= 13


@given(HISTORIES)
def test_nothing_is_kept_for_ever(history):
    teller = Teller()
    state = teller.live(history)
    teller.look(state)
    teller.stay(state, absence.WINDOW + 0.001)
    teller.look(state)
    assert all(not health.returns for health in teller.health.values() if state)
    assert set(teller.health) == ({GOOD.id} if state else set())


def test_a_card_comes_back_when_it_was_good_for_a_second():
    teller = Teller()
    teller.look(BAD)
    teller.now += 100
    back = teller.look(GOOD)
    assert (back.changes, back.again) == ((), absence.HOLD)
    assert back.cards[0].reasons == ("it has just come back and has to stay good for 1 s",)
    teller.now += absence.HOLD / 2
    assert teller.look(GOOD).again == absence.HOLD / 2
    teller.now += absence.HOLD / 2
    assert teller.look(GOOD).changes == (absence.HealthChange(GOOD.id, True, ()),)
    assert teller.last.again is None


def test_each_return_within_the_window_doubles_the_hold():
    teller = Teller()
    holds = []
    for _ in range(7):
        teller.look(BAD)
        holds.append(teller.look(GOOD).again)
    assert holds == [1, 2, 4, 8, 16, 30, 30]
    (reason,) = teller.last.cards[0].reasons
    assert reason == (
        "flapping: came back 7 times in a minute; "
        "check the cable, the transceiver and the switch port"
    )


def test_a_quiet_minute_is_forgiven():
    teller = Teller()
    for state in (BAD, GOOD) * 5:
        teller.look(state)
    teller.stay(GOOD, absence.WINDOW)
    teller.look(BAD)
    assert teller.look(GOOD).again == absence.HOLD


def test_who_falls_after_it_flapped_says_so():
    teller = Teller()
    for state in (BAD, GOOD) * 2:
        teller.look(state)
    teller.stay(GOOD, 2 * absence.HOLD)
    (change,) = teller.look(BAD).changes
    assert change.reasons[0] == DOWN
    assert change.reasons[1].startswith("flapping: came back 2 times")
    assert teller.last.cards == (BAD,), "what is shown of the card is what is true now"


def test_a_card_that_vanishes_and_returns_has_flapped():
    teller = Teller()
    teller.look(GOOD)
    teller.now += 1000
    (change,) = teller.look(GONE).changes
    assert (change.card, change.healthy) == (GOOD.id, False)
    assert "gone" in change.reasons[0]
    teller.now += 5
    assert teller.look(GONE).changes == ()
    assert teller.look(GOOD).again == absence.HOLD


def test_a_card_that_was_gone_for_long_is_new():
    teller = Teller()
    teller.look(GOOD)
    for _ in range(3):
        teller.look(GONE)
        teller.now += absence.WINDOW / 3
    assert teller.look(GOOD).changes == (absence.HealthChange(GOOD.id, True, ()),)


def test_a_missing_device_node_names_the_way_to_make_it():
    card = hard_card(0x81, 3, kinds=(CharKind.UVERBS, CharKind.UMAD))
    path = "/dev/infiniband/uverbs3"
    found, untouched = absence.with_missing_nodes([card, GOOD], {path})
    (reason,) = found.reasons
    assert reason == (
        "uverbs3 is missing in /dev/infiniband: "
        "mknod /dev/infiniband/uverbs3 c 231 3, or load its module again"
    )
    assert untouched == GOOD
    assert absence.with_missing_nodes([BAD], {"/dev/infiniband/uverbs0"})[0].reasons[0] == DOWN


AWAY = replace(GOOD, devices=(), function=replace(GOOD.function, netdevs=()))
NET1 = PodLink("net1", True, False, GOOD.pci)


def test_a_card_inside_a_pod_is_judged_by_its_link_there():
    found = absence.inside_pod(AWAY, "jobs/train-0", [replace(NET1, name="lo", pci=None), NET1])
    assert found.reasons == (
        "in pod jobs/train-0: net1 has no carrier: check the cable and the switch port behind it",
    )


@pytest.mark.parametrize(
    "link",
    [
        replace(NET1, carrier=True),
        replace(NET1, carrier=None),
        replace(NET1, up=False),
        replace(NET1, pci=PciAddress("0000:82:00.0")),
        replace(NET1, pci=None),
    ],
)
def test_another_link_or_one_that_the_pod_has_set_down_says_nothing(link):
    assert absence.inside_pod(AWAY, "jobs/train-0", [link]) == AWAY


def test_a_card_with_its_interface_here_is_not_in_the_pod():
    assert absence.inside_pod(GOOD, "jobs/train-0", [NET1]) == GOOD
    soft = replace(GOOD, function=None)
    assert absence.inside_pod(soft, "jobs/train-0", [NET1]) == soft
