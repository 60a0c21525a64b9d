"""Pods through the scheduler: what is made for it, and the figures of what was measured."""

import json
from types import SimpleNamespace

import pytest

from bench import scheduling
from bench.claim_spread import in_order, in_rows, offered, slices_text
from bench.scheduling import Pace
from kube_base.errors import Unavailable
from kube_rdma.model.claims.devices import DRIVER


def figures(**paces):
    every = {name: Pace() for name in scheduling.CLASSES} | paces
    return {row.key: row.value for row in scheduling.figures(every, scheduling.USUAL)}


def test_the_ratios_are_pods_per_second_and_the_scheduler_s_work():
    rows = figures(plain=Pace(100, 1.0, 0.1), floor=Pace(100, 2.0, 0.2), claims=Pace(100, 4.0, 0.5))
    assert rows["claims_pods_per_second"] == 25
    assert rows["claims_to_floor"] == 0.5
    assert rows["claims_to_floor_cpu"] == 2.5
    assert rows["claims_to_plain"] == 0.25
    assert rows["floor_to_plain"] == 0.5


def test_what_rows_cost_is_beside_cards_without_them():
    rows = figures(whole=Pace(100, 2.0, 0.4), claims=Pace(100, 4.0, 0.6))
    assert rows["claims_to_whole"] == 0.5
    assert rows["claims_to_whole_cpu"] == pytest.approx(1.5)


def test_of_a_run_that_ended_early_there_is_what_it_measured():
    assert set(figures(plain=Pace(100, 1.0, 0.1))) == {"plain_pods_per_second", "plain_cpu_ms"}


@pytest.mark.parametrize("shape", [in_rows, in_order])
def test_two_thousand_claims_find_devices(shape):
    """As many as may be asked for, with rows of shares and without."""
    (part,) = shape(offered(scheduling.SHARES), {})
    room = {one.name: dict(one.capacities)["slots"].value for one in part if one.shared}
    single = sum(not one.shared for one in part)
    assert scheduling.USUAL.nodes * (sum(room.values()) + single) >= 2000


def test_each_load_with_claims_has_nodes_of_its_own():
    """Or the allocator would look at what the others have, for each claim."""
    drivers = {
        load: {one["spec"]["driver"] for one in scheduling.slices_of(load, f"{load}-0", "uid")}
        for load in scheduling.CLASSES
    }
    assert drivers == {
        "plain": set(),
        "floor": {scheduling.FLOOR_DRIVER},
        "whole": {scheduling.WHOLE_DRIVER},
        "claims": {DRIVER},
    }
    for load in scheduling.CLASSES:
        (pod,) = (one for one in scheduling.wanted(load, "a") if one["kind"] == "Pod")
        assert pod["spec"]["nodeSelector"] == {"load": load}


def test_slices_of_a_node_go_with_it():
    (part,) = json.loads(slices_text(in_rows(offered(2), {}), "node-7", "its-uid"))
    assert part["spec"]["nodeName"] == part["spec"]["pool"]["name"] == "node-7"
    assert [owner["uid"] for owner in part["metadata"]["ownerReferences"]] == ["its-uid"]


def test_only_pods_with_a_claim_name_one():
    pods = {load: list(scheduling.wanted(load, "a")) for load in scheduling.CLASSES}
    kinds = {load: [one["kind"] for one in documents] for load, documents in pods.items()}
    with_claim = ["ResourceClaim", "Pod"]
    claiming = dict.fromkeys(("floor", "whole", "claims"), with_claim)
    assert kinds == {"plain": ["Pod"], **claiming}
    assert "resourceClaims" not in pods["plain"][0]["spec"]


@pytest.fixture
def script(tmp_path):
    """A kubectl that says what a shell script prints."""

    def make(text):
        lab = SimpleNamespace(kubectl=lambda *_: ["sh", "-c", text])
        return scheduling.BenchScheduler(lab, None, tmp_path / "log")

    return make


def test_a_watch_that_the_server_ends_begins_anew(script):
    told = script("echo pod/marker; echo pod/plain-0").watch("plain")
    assert [next(told) for _ in range(4)] == ["marker", "plain-0"] * 2
    told.close()


def test_a_watch_that_fails_is_said(script):
    with pytest.raises(Unavailable, match="--watch` failed"):
        list(script("echo pod/marker; exit 1").watch("plain"))
