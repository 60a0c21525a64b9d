"""What a bundle of format 1 calls the findings in it, whatever the model calls them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.adapters.files import bundle
from kube_rdma.model.doctor import Observation, ObservedPod
from kube_rdma.model.finding import Finding, NotSeen, Severity
from tests.kit.nodes import device, function, node, position

PROBLEM = {
    "code": "AgentNotReady",
    "about": "node/node-1",
    "sentence": "It is not ready",
    "remedy": "See its log",
    "is_advice": False,
}
OF_POD = {
    "rule": "mgpu",
    "severity": "refuse",
    "path": ["spec", "containers", 0],
    "problem": "both",
    "remedy": "Remove one",
}
WORDS = st.text("ab .:/", max_size=5)
SEVERITIES = st.sampled_from([Severity.ERROR, Severity.ADVICE])
PATHS = st.lists(st.sampled_from(["spec", 0, "a/b"]), min_size=1, max_size=3).map(tuple)


def test_the_words_are_those_of_format_1():
    """Bundles of every release are read by later ones."""
    path, where = tuple(OF_POD["path"]), position(0x81)
    seen = Observation(
        "node-1",
        survey=node(function(where), devices=(device(0, where),)).survey,
        problems=(
            Finding.of("AgentNotReady", "node/node-1", "It is not ready", "See its log"),
            Finding.of("X", "", "y", "z", Severity.ADVICE),
        ),
        pod=ObservedPod(
            "default",
            "train",
            findings=(
                Finding.of("mgpu", path, "both", "Remove one"),
                Finding.of("mgpu", path, "both", "Remove one", Severity.WARNING),
            ),
        ),
        not_seen=(NotSeen("cni", "no right"),),
    )
    document = json.loads(bundle.encode(seen))
    advice = {"code": "X", "about": "", "sentence": "y", "remedy": "z", "is_advice": True}
    assert document["problems"] == [PROBLEM, advice]
    assert document["pod"]["findings"] == [OF_POD, OF_POD | {"severity": "warn"}]
    parts = document["survey"]["devices"] + document["survey"]["functions"]
    assert [one["seat"]["pci"] for one in parts] == [where.pci] * 2
    assert document["blanks"] == [{"part": "cni", "why": "no right"}]
    assert bundle.decode(json.dumps(document).encode(), "x.json") == seen


@given(
    st.lists(st.builds(Finding.of, WORDS, WORDS, WORDS, WORDS, SEVERITIES)),
    st.lists(st.builds(Finding.of, WORDS, PATHS, WORDS, WORDS)),
)
def test_what_is_written_is_read_again(problems, findings):
    pod = ObservedPod("default", "train", findings=tuple(findings))
    seen = Observation("node-1", problems=tuple(problems), pod=pod)
    assert bundle.decode(bundle.encode(seen), "x.json") == seen


@pytest.mark.parametrize(
    "more",
    [
        {"problems": [{"code": "x"}]},
        {"problems": 1},
        {"problems": [PROBLEM | {"about": None}]},
        {"pod": {"namespace": "a", "name": "b", "findings": [OF_POD | {"severity": "error"}]}},
        {"pod": {"findings": [OF_POD]}},
    ],
)
def test_findings_of_another_form_are_refused(more):
    text = json.dumps({"document": 1, "node": "a"} | more)
    with pytest.raises(Refused, match=r"\Ax.json: this is not a bundle"):
        bundle.decode(text.encode(), "x.json")


def test_a_newer_format_is_named_by_its_number():
    text = json.dumps({"document": 2, "node": "a", "problems": [{"subject": "x"}]})
    with pytest.raises(Refused, match="the bundle has format 2"):
        bundle.decode(text.encode(), "x.json")
