"""Shares, cards and their health as series; durations as histograms."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma.metrics.rules import families
from kube_rdma.metrics.rules.series import health_counts, health_series, resource_series
from kube_rdma.metrics.stopwatch import BOUNDS, none_yet, observed, outcome
from kube_rdma.model.card import CardId
from kube_rdma.model.errors import HardwareGone
from kube_rdma.model.pools import Mode
from kube_rdma.pools.rules.absence import HealthChange
from tests.unit.metrics.rules.test_pods import RDMA, holding, pool

A, B = CardId("a"), CardId("b")


def values(series):
    return {(one.family.name, one.labels): one.value for one in series}


def test_shares_offered_healthy_and_in_use():
    pools = pool(Mode.EXCLUSIVE, 0, 1)
    series = values(resource_series(pools, [holding("a", 0), holding("b", 0)]))
    assert series["kube_rdma_resource_shares", (RDMA,)] == 2
    assert series["kube_rdma_resource_shares_healthy", (RDMA,)] == 2
    assert series["kube_rdma_resource_shares_in_use", (RDMA,)] == 1  # it is one share, held twice
    card = pools[RDMA].cards[0]
    assert series["kube_rdma_card_healthy", (card.id, "mlx5_0", RDMA)] == 1
    assert series["kube_rdma_resource_device_info", (RDMA, card.id, "mlx5_0")] == 1


def test_nobody_knows_what_is_in_use_while_the_kubelet_is_silent():
    names = {name for name, _ in values(resource_series(pool(Mode.HCA, 0), None))}
    assert "kube_rdma_resource_shares" in names
    assert "kube_rdma_resource_shares_in_use" not in names


def test_changes_of_health_are_counted_from_the_second_sight():
    first = health_counts({}, [HealthChange(A, False, ("down",))], (), {A})
    assert values(health_series(first)) == {}
    changes = [HealthChange(A, True, ()), HealthChange(B, True, ())]
    then = health_counts(first, changes, {A}, {A, B})
    assert values(health_series(then)) == {
        ("kube_rdma_card_health_changes_total", ("a", "false")): 0,
        ("kube_rdma_card_health_changes_total", ("a", "true")): 1,
    }
    assert health_counts(then, (), {A, B}, {B}) == {}


@given(st.lists(st.floats(min_value=-1, max_value=100, allow_nan=False)))
def test_a_histogram_has_each_duration_once(seconds):
    counts = none_yet(families.IPAM, ("ok",))
    for one in seconds:
        counts = observed(counts, one)
    for place, bound in enumerate(BOUNDS):
        assert sum(counts.counts[: place + 1]) == sum(one <= bound for one in seconds)
    assert sum(counts.counts) == len(seconds)
    assert counts.total >= 0


def test_outcomes_say_who_has_to_act():
    errors = [
        None,
        Refused("x", remedy="y"),
        Unavailable("x"),
        HardwareGone("x"),
        Broken("x"),
        KeyError("x"),
    ]
    words = ["ok", "refused", "unavailable", "unavailable", "broken", "failed"]
    assert [outcome(error) for error in errors] == words
