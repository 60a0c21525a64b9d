"""The start of pods with claims and without: what is made, and the figures of what was measured."""

from bench import claim_start
from bench.claim_start import PodStart, Starts


def figures(**seconds):
    starts = Starts()
    for kind, each in seconds.items():
        starts.by_kind[kind] = [PodStart(one, one / 2) for one in each]
    return {row.key: row.value for row in claim_start.figures(starts)}


def test_the_ratios_are_those_of_the_medians_and_of_the_slowest():
    rows = figures(share=[1.0, 2.0, 4.0], claim=[2.0, 3.0, 5.0])
    assert (rows["share_p50_ms"], rows["share_p99_ms"]) == (2000, 4000)
    assert rows["claim_bound_p50_ms"] == 1500
    assert (rows["claim_to_share_p50"], rows["claim_to_share_p99"]) == (1.5, 1.25)
    assert "claim_to_plain_p50" not in rows


def test_of_a_hundred_pods_one_may_be_slower_than_p99():
    rows = figures(plain=[1.0] * 99 + [9.0])
    assert rows["plain_p99_ms"] == 1000


def test_a_pod_has_a_claim_or_a_share_or_neither():
    wanted = {
        kind: claim_start.pod(kind, "a")["spec"]["containers"][0].get("resources")
        for kind in claim_start.KINDS
    }
    assert wanted == {
        "plain": None,
        "share": {"limits": {claim_start.SHARED: 1}},
        "claim": {"claims": [{"name": "card"}]},
    }
