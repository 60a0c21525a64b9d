"""Evidence of conformance: each check can be met, not met and not run, and the page says which."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_tools.conformance.checks import items
from kube_rdma_tools.conformance.evidence import (
    CheckVerdict,
    CommandOutcome,
    ConformanceCheck,
    ConformanceItem,
    RecordedCommand,
)
from kube_rdma_tools.conformance.page import ConformanceScene, files
from kube_rdma_tools.conformance.pods import CLAIMING, DECODE, LARGE, PREFILL, ConformanceOptions

WISH = ConformanceOptions("verbs:1", "rdma/nic", ("rail-0",))
SCENE = ConformanceScene("2026-11-26", (("kube-rdma", "0.1.0"), ("Kubernetes", "v1.34.1")))
MET, NOT_MET, NOT_RUN = CheckVerdict
NETWORK = [
    "A pod has several network interfaces",
    "What cards can do is published",
    "Pods go where the resource is, and nowhere else",
    "Pods move data over their cards",
    "A card comes by a claim (DRA)",
]
INFERENCE = [
    "Prefill and decode are pods on two nodes",
    "Decode reads memory of prefill by RDMA, as for a KV cache",
    "A request passes through an inference engine",
]
DEV = "Inter-| Receive\n face |bytes\n    lo: 0 0\n  eth0: 7 7\n  net1: 9 9\n"
UCX = "ucp_worker.c:1 UCX  INFO  ep_cfg[1]: rma(rc_verbs/rxe-1:1); \nFinal: 100 0.1"
PAIRS = [
    {"client": a, "server": b, "figure": 0.2, "devices": ["rxe-1", "rxe-2"], "why": ""}
    for a, b in ((PREFILL, DECODE), (DECODE, PREFILL))
]
CARD = {"name": "0000-81-00-0", "attributes": {"numaNode": {"int": 1}, "rail": {"int": 0}}}


class FakeCommands:
    """kubectl and kube-rdma of a cluster of two nodes where all is well, but for what is changed.

    `changed` are answers by a part of the command's words.
    """

    def __init__(self, changed=None):
        self.changed = changed or {}
        self.asked = []

    def __call__(self, words, stdin):
        line = " ".join(words)
        self.asked.append((line, stdin))
        for part, answer in self.changed.items():
            if part in line:
                return answer if isinstance(answer, CommandOutcome) else CommandOutcome(0, answer)
        if "get pod " in line:
            return CommandOutcome(0, json.dumps(pod(line.split("get pod ")[1].split()[0])))
        return CommandOutcome(0, next((a for part, a in ANSWERS.items() if part in line), ""))


NODES = (("node-1", {"rdma/nic": "1k"}), ("node-2", {"rdma/nic": "8"}), ("node-3", {}))
CLAIM = {
    "metadata": {"name": f"{CLAIMING}-x"},
    "status": {"allocation": {"devices": {"results": [{"driver": DRIVER, "device": "a-card"}]}}},
}


def listed(*objects):
    return json.dumps({"items": objects})


ANSWERS = {
    "/proc/net/dev": DEV,
    "get resourceslices": listed({"spec": {"driver": DRIVER, "devices": [CARD]}}),
    "get nodes -o json": listed(
        *({"metadata": {"name": name}, "status": {"allocatable": free}} for name, free in NODES)
    ),
    "get resourceclaims": listed(CLAIM),
    "kube-rdma verify": json.dumps({"pairs": PAIRS}),
    "-t ucp_get": UCX,
}


def pod(name):
    if name == LARGE:
        message = "0/3 nodes are available: 3 Insufficient rdma/nic."
        scheduled = {"type": "PodScheduled", "status": "False", "message": message}
        return {"metadata": {}, "status": {"conditions": [scheduled]}}
    own = [{"interface": "net1", "rdmaDevice": "rxe-1"}]
    annotations = {"kube-rdma.io/network-status": json.dumps(own)}
    node = "node-1" if name == PREFILL else "node-2"
    return {
        "metadata": {"annotations": annotations},
        "spec": {"nodeName": node},
        "status": {"podIP": "10.244.1.5"},
    }


def checks(run, options=WISH):
    return {one.title: one for item in items(options, run) for one in item.checks}


def test_where_all_is_well_the_engine_alone_is_not_run():
    made = tuple(items(WISH, FakeCommands()))
    assert [(item.id, item.status) for item in made] == [
        ("high_performance_networking", "Implemented"),
        ("disaggregated_inference", "Partially Implemented"),
    ]
    assert [one.title for one in made[0].checks] == NETWORK
    assert [one.title for one in made[1].checks] == INFERENCE
    assert [one.verdict for one in made[1].checks] == [MET, MET, NOT_RUN]


FAILED = CommandOutcome(1, "", "error: timed out waiting for the condition")
ABSENT = CommandOutcome(1, "", "Error from server (NotFound)")
EMPTY = json.dumps({"items": []})
CHANGES = [
    (NETWORK[0], {"condition=Ready": FAILED}, NOT_MET, "timed out"),
    (NETWORK[0], {"/proc/net/dev": "    lo: 0\n  eth0: 7\n"}, NOT_MET, "1 networks are asked"),
    (NETWORK[1], {"get resourceslices": EMPTY, "get nodereports": EMPTY}, NOT_MET, "Neither"),
    (NETWORK[2], {"get nodes -o json": EMPTY}, NOT_MET, "no share"),
    (NETWORK[2], {"PodScheduled=false": FAILED}, NOT_MET, "timed out"),
    (NETWORK[3], {"kube-rdma verify": CommandOutcome(2, "", "Usage: …")}, NOT_MET, "Usage"),
    (NETWORK[3], {"kube-rdma verify": '{"pairs": []}'}, NOT_MET, "no pair"),
    (NETWORK[4], {"get deviceclass": ABSENT}, NOT_RUN, "claims.enabled"),
    (NETWORK[4], {"get resourceclaims": EMPTY}, NOT_MET, "no claim"),
    (INFERENCE[1], {"command -v": CommandOutcome(1, "")}, NOT_RUN, "no ucx_perftest"),
    (INFERENCE[1], {"ucp_get": "rma(tcp/eth0)"}, NOT_MET, "another way"),
    (INFERENCE[1], {"ucp_get": UCX.replace("rxe-1", "rxe0")}, NOT_MET, "UCX used rxe0"),
    (INFERENCE[1], {"ucp_get": FAILED}, NOT_MET, "failed"),
]


@pytest.mark.parametrize(("title", "changed", "verdict", "word"), CHANGES)
def test_a_check_says_what_is_missing(title, changed, verdict, word):
    check = checks(FakeCommands(changed))[title]
    assert check.verdict is verdict
    assert word in check.sentence
    assert check.commands or verdict is NOT_RUN


def test_without_slices_the_reports_count_and_the_sentence_says_so():
    reports = json.dumps({"items": [{"status": {"cards": [{"id": "0000:81:00.0"}]}}]})
    changed = {"get resourceslices": EMPTY, "get nodereports": reports}
    check = checks(FakeCommands(changed))[NETWORK[1]]
    assert check.verdict is MET
    assert "publishes no ResourceSlice" in check.sentence


@pytest.mark.parametrize("changed", [{}, {"condition=Ready": FAILED}])
def test_what_was_started_is_removed(changed):
    run = FakeCommands(changed)
    tuple(items(WISH, run))
    (removed,) = [line for line, _ in run.asked if "delete pod " in line]
    started = {
        each["metadata"]["name"]
        for line, stdin in run.asked
        if " apply " in line
        for each in json.loads(stdin)["items"]
        if each["kind"] == "Pod"
    }
    assert started <= set(removed.split())


VERDICTS = st.lists(st.sampled_from(CheckVerdict), min_size=1, max_size=5)


@given(VERDICTS)
def test_only_checks_that_are_all_met_are_implemented(verdicts):
    item = ConformanceItem("a", 1, "A", tuple(ConformanceCheck("a", v, "b") for v in verdicts))
    assert (item.status == "Implemented") == (set(verdicts) == {MET})
    assert (item.status == "") == (set(verdicts) == {NOT_RUN})
    assert (item.status == "Not Implemented") == (MET not in verdicts and NOT_MET in verdicts)


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_output_of_a_command_ends_its_block(text, errors):
    command = RecordedCommand(("a",), "", CommandOutcome(1, text, errors))
    item = ConformanceItem("a", 1, "A", (ConformanceCheck("a", MET, "b", (command,)),))
    page = files((item,), SCENE)["a.md"]
    assert len(re.findall(r"(?m)^~~~~", page)) == 2
