"""A port is called degraded by evidence over time, and by the same rules as the doctor's."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.hardware.rules import error_counters
from kube_rdma.hardware.rules.error_counters import (
    LIMITS,
    QUIET_SECONDS,
    RISING_INTERVALS,
    PortEvidence,
    judged,
)
from kube_rdma.model.doctor import ObservedErrors
from tests.unit.doctor.rules.healthy import HEALTHY

WALL = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
MINUTES = 5  # from one reading to the next, where nothing else is said
LOST = "packet_seq_err"


class Watched:
    """A port whose counters a test moves; each reading is judged."""

    def __init__(self, **counters):
        self.at, self.wall, self.counters = 1e6, WALL, dict.fromkeys(LIMITS, 1000) | counters
        self.evidence = PortEvidence()
        self.read(0)

    def read(self, minutes=MINUTES, *, up=True, **rises):
        """After so many minutes; `rises` are of each of them. Return whether it is degraded."""
        self.at += minutes * 60
        self.wall += timedelta(minutes=minutes)
        for name, more in rises.items():
            self.counters[name] += round(more * minutes)
        counters = dict(self.counters) if up else {}
        self.evidence = judged(self.evidence, self.at, counters, self.wall, "port 1 of mlx5_0")
        return bool(self.evidence.sentence)

    def rise(self, intervals=RISING_INTERVALS, **rises):
        return [self.read(**rises) for _ in range(intervals)]


def test_a_counter_that_goes_on_rising_is_named_with_its_rate_its_begin_and_its_end():
    port = Watched()
    assert port.rise(symbol_error=12, link_downed=0) == [False, False, True]
    assert port.evidence.sentence == (
        "symbol_error of port 1 of mlx5_0 rises by 12.0 a minute since 2026-11-30T08:00:00Z (The "
        "link damages data, or goes down now and then); 30 minutes below 1 a minute end this"
    )
    quiet = int(QUIET_SECONDS / 60 / MINUTES)
    assert port.rise(quiet, symbol_error=0.8) == [True] * (quiet - 1) + [False]
    assert port.rise(symbol_error=12) == [False, False, True]


def test_a_verdict_stays_while_the_counter_rises_at_half_of_the_rate_that_made_it():
    port = Watched()
    port.rise(symbol_error=12)
    first = port.evidence.sentence
    assert all(port.rise(20, symbol_error=1.4))
    assert port.evidence.sentence == first, "the report would be written anew each time"
    assert Watched().rise(20, symbol_error=1.4) == [False] * 20


def test_one_burst_is_no_evidence_however_large():
    port = Watched()
    port.read(symbol_error=10_000_000, link_downed=50, packet_seq_err=10**9)
    assert not any(port.rise(10))
    for _ in range(10):  # nor are two intervals, again and again
        assert port.rise(2, symbol_error=10_000) + port.rise(1) == [False] * 3


def test_different_counters_that_rise_in_turn_are_no_evidence_of_one():
    port = Watched()
    for name in ("symbol_error", "rx_icrc_encapsulated", "rx_roce_errors") * 3:
        assert not port.read(**{name: 100})


def test_a_link_that_goes_down_again_and_again_is_degraded_though_it_is_up_at_each_reading():
    port = Watched()
    assert port.rise(link_downed=0.2) == [False, False, True]
    assert "below 0.05 a minute" in port.evidence.sentence


def test_errors_that_go_over_to_another_counter_are_named_by_it():
    port = Watched()
    port.rise(symbol_error=12)
    assert all(port.rise(rx_crc_errors_phy=30))
    assert port.evidence.sentence.startswith("rx_crc_errors_phy of port 1")
    assert "since 2026-11-30T08:15:00Z" in port.evidence.sentence


@pytest.mark.parametrize("gap", ["down", "reset", "one counter fell"])
def test_an_interval_that_cannot_be_compared_is_no_evidence_of_errors_nor_of_quiet(gap):
    below = iter(range(900, 0, -1))

    def happens(port):
        if gap == "down":
            port.read(up=False)
        else:
            names = port.counters if gap == "reset" else ["link_error_recovery"]
            port.counters |= dict.fromkeys(names, next(below))
        return port.read(symbol_error=1000)

    port = Watched()
    port.rise(RISING_INTERVALS - 1, symbol_error=12)
    assert not happens(port)
    assert port.rise(symbol_error=12) == [False, False, True]
    assert all(happens(port) for _ in range(20))


def test_a_full_counter_cannot_end_a_verdict_and_says_what_does():
    port = Watched(symbol_error=65535 - 3 * 60)
    port.rise(symbol_error=12)
    assert all(port.rise(20))
    assert "; a reset of symbol_error, which is full, and then 30 minutes" in port.evidence.sentence
    port.counters["symbol_error"] = 0
    assert port.rise(7) == [True] * 6 + [False]


def test_readings_that_follow_each_other_at_once_count_as_one():
    port = Watched()
    assert not any(port.read(0.05, symbol_error=20_000) for _ in range(3 * 20 - 1))
    assert port.read(0.05, symbol_error=20_000), "three intervals of a minute each"


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(hours=5)])
def test_a_time_of_day_that_jumps_changes_no_verdict(jump):
    port = Watched()
    port.rise(2, symbol_error=12)
    port.wall += jump
    assert port.read(symbol_error=12)
    port.wall -= 2 * jump
    assert port.rise(7) == [True] * 5 + [False] * 2


# A model: what follows from steps, said anew in the simplest way.

STEPS = {"rises": 70_000, "slow": 45_000, "quiet": 20_000, "away": 0, "reset": 0, "at once": 0}


class Model:
    def __init__(self):
        self.streak, self.quiet, self.degraded, self.away = 0, 0.0, False, False

    def step(self, kind, minutes):
        if kind == "at once":
            return
        if kind in ("away", "reset") or self.away:
            self.streak, self.away = 0, kind == "away"
            return
        self.streak = self.streak + 1 if kind == "rises" else 0
        self.quiet = self.quiet + minutes * 60 if kind == "quiet" else 0.0
        if self.streak >= RISING_INTERVALS and not self.degraded:
            self.degraded = True
        if self.quiet >= QUIET_SECONDS:
            self.degraded, self.quiet = False, 0.0


@given(st.lists(st.tuples(st.sampled_from([*STEPS, "rises", "quiet"]), st.integers(1, 40))))
def test_whatever_happens_in_any_order_the_verdict_is_that_of_the_model(steps):
    port, model = Watched(), Model()
    for kind, minutes in steps:
        if kind == "reset":
            port.counters[LOST] = 1
        seconds = 0.1 if kind == "at once" else minutes
        port.read(seconds, up=kind != "away", **{LOST: STEPS[kind]})
        model.step(kind, minutes)
        assert bool(port.evidence.sentence) == model.degraded, (kind, minutes)
        port.counters[LOST] += kind == "reset"  # so that the next reset is one


# The rules are the doctor's.


def told_by_the_doctor(name, seconds=60.0, times=1.01):
    """Whether KR129 is found where a counter rises as fast as the limit says, and a little more."""
    more = max(1, int(LIMITS[name] * times * seconds / 60) + 1)
    errors = (ObservedErrors("mlx5_0", 1, seconds, ((name, more),)),)
    return "KR129" in [one.code for one in diagnose(replace(HEALTHY, errors=errors)).findings]


def test_whatever_degrades_a_port_is_an_error_for_the_doctor():
    assert [name for name in LIMITS if not told_by_the_doctor(name)] == []
    assert not told_by_the_doctor("tx_prio3_pause_duration", times=0.9), "the test can fail"


def test_errors_of_others_congestion_and_what_overtakes_degrade_no_port():
    """All else that is an error for the doctor does, if it rises fast enough."""
    known = dict.fromkeys(error_counters.KEPT, 0)
    degraded = {name for name in known if Watched(**known).rise(**{name: 10**9})[-1]}
    assert degraded == LIMITS.keys() - {"out_of_sequence"}
    assert known.keys() - degraded == {
        *error_counters.CONGESTION,
        *error_counters.PAUSES,
        "out_of_sequence",
        "port_rcv_remote_physical_errors",
        *(name for name in error_counters.PAUSED if "rx" in name),
    }


# A week of healthy ports: nothing is said of any.


def healthy(seed, bad=(0, 0)):
    """Yield minutes and rises of each interval of a week of a healthy port, by the minute.

    Between the two times of `bad`, in minutes, three symbols a minute are damaged.
    """
    chance = random.Random(seed)  # noqa: S311
    lossy = 10 ** chance.uniform(0, 3.7)  # packets a minute that are sent again
    now = 0.0
    while now < 7 * 24 * 60:
        minutes = chance.uniform(200, 400) / 60
        load = chance.random()
        rises = {
            "np_cnp_sent": load * 1e6,
            "rp_cnp_handled": load * 1e6,
            "out_of_sequence": load * 1e7 if seed % 4 == 0 else lossy,
            LOST: lossy * load,
            "local_ack_timeout_err": load * 3,
            "rx_discards_phy": lossy * load * (1000 if chance.random() < 0.005 else 5),
            "rx_prio3_pause_duration": load * 55e6,
            "tx_prio3_pause_duration": load * 20e6,
            "symbol_error": chance.random() < 0.02 and 1 / minutes,
        }
        event = chance.random()
        if now < 8 or event < 0.001:  # the link is trained: at boot, or somebody pulls the cable
            rises |= {"symbol_error": 9000 * load, "link_downed": 0.5, "port_rcv_errors": 50 * load}
        elif event < 0.002:
            rises["rx_crc_errors_phy"] = 10_000 * load
        if bad[0] <= now < bad[1]:
            rises["symbol_error"] = 3
        yield minutes, rises, event
        now += minutes


def verdicts(week):
    """The sentences about a port in a week, each once."""
    found = []
    names = {name: 0 for _, rises, _ in week for name in rises}
    port = Watched()
    port.counters = dict(names)
    for minutes, rises, event in week:
        if 0.002 < event < 0.0025:
            port.counters = dict(names)  # the driver is loaded again
        port.read(minutes, up=not 0.0005 < event < 0.001, **rises)
        if port.evidence.sentence not in ("", *found):
            found.append(port.evidence.sentence)
    return found


@pytest.mark.parametrize("ports", [16, pytest.param(512, marks=pytest.mark.slow)])
def test_a_week_of_healthy_counters_gives_no_verdict_and_one_bad_cable_gives_one(ports):
    """They have errors at boot, congestion that always rises, resets and pulled cables."""
    assert [sentence for seed in range(ports) for sentence in verdicts([*healthy(seed)])] == []
    (only,) = verdicts([*healthy(3, bad=(3000, 3100))])
    assert only.startswith("symbol_error of port 1 of mlx5_0 rises by 3.")
