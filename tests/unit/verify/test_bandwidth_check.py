"""A BandwidthCheck: what its spec means, a sentence for what cannot be, a status with an end."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.model.verify import (
    MOST_NAMES,
    MOST_PAIRS,
    Operation,
    Pairing,
    PairOutcome,
    PairProof,
    PairStandard,
    PerftestRow,
    PerftestRun,
    RatedPair,
    Rating,
    Suspect,
    SuspectKind,
)
from kube_rdma.verify import bandwidth_check as statuses
from kube_rdma.verify.bandwidth_check import load_plan
from tests.kit import manifests

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
POD = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"rdma/hca": 1}}}]}
SOME = {"selector": {"a": "b"}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}, "name": "x"}, "spec": {**POD, "hostNetwork": True}}


def plan(**spec):
    return load_plan(json.dumps(spec).encode(), "train/nightly")


def test_a_selector_alone_is_enough():
    read = plan(selector={"b": "2", "a": "1"})
    assert read.selector == "a=1,b=2"
    assert (read.run, read.standard) == (PerftestRun(), PairStandard())
    assert (read.template, read.every, read.pairing) == (None, None, Pairing.ALL)


def test_pairs_are_those_of_the_command():
    assert [plan(**SOME, pairs=each.value).pairing for each in Pairing] == list(Pairing)
    with pytest.raises(Refused, match=r'spec\.pairs: "mesh" is not a value of this field'):
        plan(**SOME, pairs="mesh")


def test_all_that_it_can_say():
    read = plan(
        template=TEMPLATE,
        nodes=["n1", "n2"],
        startSeconds=60,
        test="read",
        latency=True,
        size=64,
        iterations=100,
        queuePairs=4,
        rdmaCM=True,
        cuda=0,
        pairSeconds=30,
        pairs="ring",
        bothWays=True,
        maxLatency="12us",
        lineSharePercent=90,
        tolerancePercent=5,
        againstLast=True,
        everySeconds=3600,
    )
    assert read.run == PerftestRun(
        Operation.READ, True, 64, False, 100, 4, rdma_cm=True, cuda=0, seconds=30
    )
    assert read.standard == PairStandard(latency=True, limit=12, line_share=0.9, tolerance=0.05)
    assert (read.nodes, read.start_seconds, read.every) == (("n1", "n2"), 60, 3600)
    assert read.both_ways
    assert read.pairing is Pairing.RING
    assert read.against_last


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({"minBandwidth": "180G"}, 180),
        ({"minBandwidth": "2500M"}, 2.5),
        ({"minGbps": 97.5}, 97.5),
        ({"minGbps": 180}, 180),
        ({"latency": True, "maxLatency": "5us"}, 5),
        ({"latency": True, "maxLatency": "850ns"}, 0.85),
        ({"latency": True, "maxLatency": "1.5ms"}, 1500),
        ({"latency": True, "maxMicroseconds": 2.5}, 2.5),
        ({}, None),
    ],
)
def test_a_limit_is_read_in_its_new_form_and_in_its_old_one(spec, limit):
    assert plan(**SOME, **spec).standard.limit == limit


def test_a_template_goes_on_as_it_was_written_but_for_its_name():
    assert plan(template=TEMPLATE).template == manifests.manifest(
        "v1", "Pod", {"labels": {"a": "b"}}, TEMPLATE["spec"]
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "BandwidthCheck train/nightly: spec: it chooses no pods"),
        ({"selector": {"a": "b"}, "template": TEMPLATE}, "spec.template: selector chooses"),
        ({"selector": {"a": "b"}, "nodes": ["n"]}, "spec.nodes: nodes are for copies"),
        ({"selector": {"a": "b"}, "size": 1, "allSizes": True}, "spec.allSizes: size says"),
        ({**SOME, "latency": True, "minBandwidth": "1G"}, "spec.minBandwidth: this is no lat"),
        ({**SOME, "latency": True, "minGbps": 1}, "spec.minGbps: this is no lat"),
        ({**SOME, "maxLatency": "1us"}, "spec.maxLatency: this is for"),
        ({**SOME, "maxMicroseconds": 1}, "spec.maxMicroseconds: this is for"),
        ({**SOME, "minBandwidth": "180"}, 'with a suffix: k, M, G, T. Write it like "180G"'),
        ({**SOME, "minBandwidth": 180}, "spec.minBandwidth: 180 is not a text. Put it in quotes"),
        (
            {**SOME, "latency": True, "maxLatency": "5"},
            'with one unit: ns, us, ms, s. Write it like "5us"',
        ),
        (
            {**SOME, "minBandwidth": "1G", "minGbps": 1},
            "spec.minGbps: it is the old form of minBandwidth, which is given too",
        ),
        (
            {**SOME, "latency": True, "maxLatency": "1us", "maxMicroseconds": 1},
            "spec.maxMicroseconds: it is the old form of maxLatency, which is given too",
        ),
        ({"selector": {"a": "b"}, "test": "atomic"}, "spec.test"),
        ({"selector": {"a": "b"}, "everySeconds": 5}, "spec.everySeconds"),
        ({"selector": {"a": "b"}, "colour": 5}, "spec.colour: there is no such field"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
        ({"template": {"spec": {"containers": ["c"]}}}, "spec.template.spec.containers"),
        ({"template": {"spec": {**POD, "nodeSelector": "x"}}}, "spec.template.spec.nodeSelector"),
        ({"template": {"metadata": {"labels": [1]}, "spec": POD}}, "spec.template.metadata.labels"),
        ({"template": {"spec": {"containers": [{"resources": 1}]}}}, "containers[0].resources"),
    ],
)
def test_what_cannot_be_is_one_sentence_with_its_place(spec, words):
    with pytest.raises(Refused) as refused:
        plan(**spec)
    assert words in str(refused.value)


def outcome(number, figure, rating, why=""):
    rows = () if figure is None else (PerftestRow(65536, 1000, figure),)
    measured = PairOutcome("a", f"b{number}", 0, ("x", "y"), None, rows)
    return RatedPair(measured, rating, why, figure)


@st.composite
def proofs(draw):
    kinds = draw(st.lists(st.sampled_from(Rating), max_size=40)) * draw(st.sampled_from([1, 30]))
    pairs = [
        outcome(
            number,
            None if rating is Rating.FAILED else draw(st.floats(0.5, 400)),
            rating,
            "" if rating is Rating.WELL else "why " * 300,
        )
        for number, rating in enumerate(kinds)
    ]
    names = tuple(f"pod-{number}" for number in range(draw(st.integers(0, 2 * MOST_NAMES))))
    blamed = tuple(Suspect(SuspectKind.CARD, name, "mlx5_0", why="w" * 999) for name in names)
    return PairProof(
        PerftestRun(), tuple(pairs), blamed, tuple((name, "w" * 999) for name in names)
    )


@given(proofs())
def test_a_status_counts_all_lists_the_worst_and_reads_back(proof):
    running = statuses.begun(None, 7, NOW)
    status = statuses.measured(running, proof, "result", NOW + timedelta(seconds=90))
    assert statuses.decode(statuses.encode(status)) == status
    assert status.pairs_measured == len(proof.rated)
    wrong = [pair for pair in proof.rated if pair.rating is not Rating.WELL]
    assert status.pairs_slow + status.pairs_failed == len(wrong)
    assert len(status.pairs) == min(len(proof.rated), MOST_PAIRS)
    shown = [pair.rating for pair in status.pairs]
    order = ["failed", "slow", "ok"]
    assert shown == sorted(shown, key=order.index)
    assert len(statuses.encode(status)) < 1_000_000  # etcd takes 1.5 MiB
    assert status.history.generation == 7
    assert (status.history.ended - status.history.began).total_seconds() == 90
    assert not status.history.hindered
    kept = status.listed
    worst = sorted(proof.rated, key=lambda pair: order.index(pair.rating))[:MOST_PAIRS]
    assert [(one.outcome.server, one.rating) for one in kept.rated] == [
        (one.outcome.server, one.rating) for one in worst
    ]
    figures = zip((one.figure for one in kept.rated), (one.figure for one in worst), strict=True)
    assert all(a == b if b is None else a == pytest.approx(b, abs=0.001) for a, b in figures)
    assert [one.node for one in kept.suspects] == [one.node for one in proof.suspects][:MOST_NAMES]


def test_while_it_runs_the_last_figures_stay():
    proof = PairProof(PerftestRun(), (outcome(1, 50.0, Rating.WELL),))
    first = statuses.measured(statuses.begun(None, 1, NOW), proof, "well", NOW)
    running = statuses.begun(first, 2, NOW)
    assert first.figures_of(1) == {("a", "b1", 0): 50.0}
    assert running.figures_of(2) == {}  # they are those of another spec
    assert running.figures_of(1) == {("a", "b1", 0): 50.0}
    assert statuses.begun(running, 2, NOW).figures_of(2) == {}  # nor does a run that broke off
    assert running.history.ended is None
    assert {each.type: each.status for each in running.conditions} == {
        "Complete": "False",
        "Well": "True",
    }


@pytest.mark.parametrize("refused", [True, False])
def test_a_run_without_figures_says_why_and_whether_to_try_again(refused):
    status = statuses.not_measured(statuses.begun(None, 1, NOW), "no right", NOW, refused=refused)
    assert (status.state, status.result) == ("NotMeasured", "no right")
    assert (status.history.hindered, status.history.refused) == (not refused, refused)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("everySeconds", 365 * 86_400),
        ("startSeconds", 3600),
        ("pairSeconds", 3600),
        ("runSeconds", 86_400),
        ("maxPairs", 100_000),
    ],
)
def test_nothing_lasts_for_ever(name, most):
    """A number without an end kept a run alive for ever, or overflowed a date."""
    assert plan(selector={"a": "b"}, **{name: most})
    with pytest.raises(Refused, match=f"spec.{name}"):
        plan(selector={"a": "b"}, **{name: most + 1})


OLD = {
    "observedGeneration": 3,
    "state": "Well",
    "lowest": 97.5,
    "highest": 97.5,
    "startTime": "2026-11-22T12:00:00Z",
    "pairs": [{"client": "a", "server": "b", "rail": 0, "figure": 97.5, "rating": "ok"}],
    "suspects": [{"kind": "node", "node": "a", "pairs": 1, "of": 1, "median": 1.5, "due": 80.0}],
}


def test_a_status_of_the_release_before_is_read_and_compared_with():
    """Its figures are numbers, and which generation they are of only its state tells."""
    old = statuses.decode(json.dumps(OLD).encode())
    assert old.figures_of(3) == {("a", "b", 0): 97.5}
    assert old.figures_of(4) == {}
    running = statuses.begun(old, 3, NOW)
    assert running.figures_of(3) == {("a", "b", 0): 97.5}
    assert json.loads(statuses.encode(running))["pairs"][0]["figure"] == 97.5  # as it was
    unclear = statuses.decode(json.dumps({**OLD, "state": "NotMeasured"}).encode())
    assert unclear.figures_of(3) == {}
    assert old.listed.rated == ()  # whether its figures are latencies, nobody knows


@pytest.mark.parametrize(
    ("latency", "figures", "texts"),
    [(False, (94.215, 0.85), ("850M", "94.215G")), (True, (2.13, 5.0), ("2.13us", "5us"))],
)
def test_figures_are_texts_with_their_unit(latency, figures, texts):
    pairs = tuple(outcome(n, figure, Rating.WELL) for n, figure in enumerate(figures))
    pairs += (outcome(9, float("nan"), Rating.FAILED),)  # perftest prints it, and JSON has no such
    suspect = Suspect(SuspectKind.NODE, "a", median=figures[0], due=figures[1])
    proof = PairProof(PerftestRun(latency=latency), pairs, (suspect,))
    status = statuses.measured(statuses.begun(None, 1, NOW), proof, "well", NOW)
    document = json.loads(statuses.encode(status))
    assert (document["lowestMeasured"], document["highestMeasured"]) == texts
    assert {pair.get("measured") for pair in document["pairs"]} == {*texts, None}
    (said,) = document["suspects"]
    assert {said["medianMeasured"], said["medianDue"]} == set(texts)
    assert not {"lowest", "highest", "figure", "median", "due"} & {*document, *said}
    assert set(status.figures_of(1).values()) == set(figures)
    assert status.listed.run.latency is latency
    assert (status.listed.suspects[0].median, status.listed.suspects[0].due) == figures


def test_a_status_of_before_suspects_had_fields_is_read():
    old = {"observedGeneration": 1, "state": "NotWell", "suspects": ["train/w-2"]}
    assert statuses.decode(json.dumps(old).encode()).suspects == ()
