"""What became of a pod, by what kubectl shows of it."""

import json

import pytest
from click.testing import CliRunner

from kube_rdma_tools.fail_open.__main__ import judge_command
from kube_rdma_tools.fail_open.judge import PodVerdict, is_over, judge, score
from kube_rdma_tools.fail_open.pods import LABEL

STARTED = "2026-11-26T21:00:00Z"


def pod(name="nic-1", *, labels=None, **status):
    metadata = {"name": name, "uid": f"uid of {name}", "labels": labels or {LABEL: "nic"}}
    return {"kind": "Pod", "metadata": metadata, "status": {"phase": "Pending", **status}}


def ran(lacks="", late="", **more):
    """A pod whose check wrote its line."""
    line = f"fail-open lacks={lacks} netdev=net1 rdma= verbs=uverbs0 late={late}\n"
    ended = {"terminated": {"startedAt": STARTED, "exitCode": 0, "message": line}}
    return pod(phase="Succeeded", containerStatuses=[{"state": ended}], **more)


def waiting(reason, message=""):
    return [{"state": {"waiting": {"reason": reason, "message": message}}}]


def event(name="nic-1", message="failed to set up sandbox", **fields):
    return {
        "kind": "Event",
        "type": "Warning",
        "reason": "FailedCreatePodSandBox",
        "metadata": {"name": "e"},
        "involvedObject": {"uid": f"uid of {name}"},
        "message": message,
        **fields,
    }


def state(**state):
    return pod(containerStatuses=[{"state": state}])


NO_ROOM = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
ENDS = {
    "all is there": (ran(), (), PodVerdict.WITH, ""),
    "something lacks": (ran(lacks="netdev,verbs"), (), PodVerdict.WITHOUT, "no netdev,verbs"),
    "a refusal before is no excuse": (
        ran(lacks="netdev"),
        (event(),),
        PodVerdict.WITHOUT,
        "no netdev",
    ),
    "admission": (
        pod(phase="Failed", reason="UnexpectedAdmissionError", message="no shares"),
        (),
        PodVerdict.REFUSED,
        "UnexpectedAdmissionError: no shares",
    ),
    "the runtime": (
        pod(containerStatuses=waiting("CreateContainerError", "no such device")),
        (),
        PodVerdict.REFUSED,
        "CreateContainerError: no such device",
    ),
    "the last event": (
        pod(containerStatuses=waiting("ContainerCreating")),
        (event(message="first"), event(message="last")),
        PodVerdict.REFUSED,
        "FailedCreatePodSandBox: last",
    ),
    "the scheduler": (
        pod(conditions=[{**NO_ROOM, "message": "no node\nhas it"}]),
        (),
        PodVerdict.REFUSED,
        "Unschedulable: no node has it",
    ),
    "it waits, and nobody says why": (
        pod(containerStatuses=waiting("ContainerCreating")),
        (),
        PodVerdict.SILENT,
        "",
    ),
    "it ran and wrote no line": (state(running={"startedAt": STARTED}), (), PodVerdict.UNCLEAR, ""),
    "it ended and wrote no line": (
        state(terminated={"startedAt": STARTED, "exitCode": 127, "message": "sh: not found"}),
        (),
        PodVerdict.UNCLEAR,
        "",
    ),
    # The kubelet says `terminated` of a container that the runtime could not make as well.
    "it never started": (
        state(terminated={"startedAt": None, "exitCode": 128, "reason": "StartError"}),
        (),
        PodVerdict.REFUSED,
        "StartError:",
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_end_of_a_pod_has_its_verdict_and_its_reason(end):
    made, events, verdict, why = ENDS[end]
    (judged,) = judge([made, *events])
    assert judged.verdict is verdict
    assert not why or judged.why == why


@pytest.mark.parametrize(
    ("of", "recovered"),
    [(None, False), (event(), True), (event("nic-2"), False), (event(type="Normal"), False)],
    ids=["nothing", "refused first", "another pod", "no warning"],
)
def test_a_pod_that_was_refused_first_recovered(of, recovered):
    (judged,) = judge([ran(), *([of] if of else [])])
    assert judged.recovered is recovered


def test_pods_of_others_are_not_judged():
    assert judge([pod(labels={"app": "nginx"}), {**pod(), "kind": "Node"}]) == ()


def test_the_score_counts_each_end():
    late, never = ran(lacks="netdev", late="3"), ran(lacks="verbs")
    total = score(judge([ran(), late, never, pod(), event(message="x")]))
    assert (total.pods, total.failed_open, total.came_late, total.recovered) == (4, 2, 1, 1)
    assert total.by_verdict[PodVerdict.REFUSED] == 1
    assert [one.late for one in judge([late, never])] == [3, None]


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"items": [ran(), pod("nic-2")]}, 0),
        ({"items": [ran(lacks="verbs")]}, 1),
        ({"items": [state(running={"startedAt": STARTED})]}, 1),
        ({"items": [pod(labels={"app": "nginx"})]}, 1),
        ({}, 3),
    ],
    ids=["with its NIC", "without", "no line", "no pod of the check", "no list"],
)
def test_the_exit_code_tells_whether_all_pods_of_the_check_had_their_nic(document, code):
    assert CliRunner().invoke(judge_command, input=json.dumps(document)).exit_code == code


@pytest.mark.parametrize(("phase", "over"), [("Succeeded", True), ("Failed", True), ("", False)])
def test_nothing_more_becomes_of_a_pod_that_ended(phase, over):
    assert is_over(pod(phase=phase)) is over
