"""What became of a pod, by what kubectl shows of it."""

import pytest

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


def only(*items):
    (verdict,) = judge(items)
    return verdict


def test_a_pod_that_has_all_ran_with_its_nic():
    assert only(ran()).verdict is PodVerdict.WITH
    assert not only(ran()).recovered


def test_a_pod_that_was_refused_first_recovered():
    assert only(ran(), event()).recovered


def test_an_event_of_another_pod_is_none_of_this_one():
    assert not only(ran(), event("nic-2")).recovered


def test_what_is_no_warning_is_no_refusal():
    assert not only(ran(), event(type="Normal")).recovered


def test_a_pod_that_lacks_something_failed_open_and_says_what():
    judged = only(ran(lacks="netdev,verbs"))
    assert (judged.verdict, judged.why, judged.late) == (
        PodVerdict.WITHOUT,
        "no netdev,verbs",
        None,
    )


def test_a_nic_that_came_later_is_fail_open_all_the_same():
    judged = only(ran(lacks="netdev", late="7"))
    assert (judged.verdict, judged.late) == (PodVerdict.WITHOUT, 7)


def test_a_refusal_before_does_not_excuse_a_pod_without_its_nic():
    assert only(ran(lacks="netdev"), event()).verdict is PodVerdict.WITHOUT


@pytest.mark.parametrize(
    ("status", "events", "why"),
    [
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no shares"},
            (),
            "UnexpectedAdmissionError: no shares",
        ),
        (
            {"containerStatuses": waiting("CreateContainerError", "no such device")},
            (),
            "CreateContainerError: no such device",
        ),
        (
            {"containerStatuses": waiting("ContainerCreating")},
            (event(message="first"), event(message="last")),
            "FailedCreatePodSandBox: last",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "no node\nhas it"}]},
            (),
            "Unschedulable: no node has it",
        ),
    ],
)  # fmt: skip
def test_a_pod_that_did_not_start_is_refused_by_whoever_says_why(status, events, why):
    judged = only(pod(**status), *events)
    assert (judged.verdict, judged.why) == (PodVerdict.REFUSED, why)


@pytest.mark.parametrize("status", [{}, {"containerStatuses": waiting("ContainerCreating")}])
def test_a_pod_that_waits_and_of_which_nobody_says_why_is_silent(status):
    assert only(pod(**status)).verdict is PodVerdict.SILENT


@pytest.mark.parametrize(
    "state",
    [
        {"terminated": {"startedAt": STARTED, "exitCode": 127, "message": "sh: not found"}},
        {"running": {"startedAt": STARTED}},
    ],
)
def test_a_pod_that_ran_and_wrote_no_line_is_counted_as_neither(state):
    """It may have lacked its NIC, so it is no success."""
    assert only(pod(containerStatuses=[{"state": state}])).verdict is PodVerdict.UNCLEAR


def test_a_container_that_never_started_did_not_run():
    """As where the runtime could not make it: the kubelet says `terminated` of it as well."""
    state = {"terminated": {"startedAt": None, "exitCode": 128, "reason": "StartError"}}
    judged = only(pod(phase="Failed", containerStatuses=[{"state": state}]))
    assert (judged.verdict, judged.why) == (PodVerdict.REFUSED, "StartError:")


def test_pods_of_others_are_not_judged():
    assert judge([pod(labels={"app": "nginx"}), {**pod(), "kind": "Node"}]) == ()


def test_the_score_counts_each_end():
    late, never = ran(lacks="netdev", late="3"), ran(lacks="verbs")
    total = score(judge([ran(), late, never, pod(), event(message="x")]))
    assert (total.pods, total.failed_open, total.came_late, total.recovered) == (4, 2, 1, 1)
    assert total.by_verdict[PodVerdict.REFUSED] == 1


@pytest.mark.parametrize(("phase", "over"), [("Succeeded", True), ("Failed", True), ("", False)])
def test_nothing_more_becomes_of_a_pod_that_ended(phase, over):
    assert is_over(pod(phase=phase)) is over
