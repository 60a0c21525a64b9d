"""What moves in a cluster and what can never come, on objects as a real API server writes them."""

import pytest

from kube_rdma_lab import signs

NOW = "2026-11-22T12:00:00Z"


def pod(name="agent", *, waiting=None, restarts=0, ended=None, **status):
    """A pod of one container."""
    state = {"waiting": waiting} if waiting else {"running": {"startedAt": NOW}}
    container = {
        "name": "main",
        "state": state,
        "ready": not waiting,
        "restartCount": restarts,
        "lastState": {"terminated": ended} if ended else {},
    }
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {
        "metadata": metadata,
        "status": {"phase": "Running", "containerStatuses": [container], **status},
    }


def event(reason, message, *, name="agent", kind="Pod", when=NOW, count=1):
    """An event as the kubelet writes it."""
    return {
        "involvedObject": {"kind": kind, "name": name, "uid": f"uid-{name}"},
        "reason": reason,
        "message": message,
        "lastTimestamp": when,
        "count": count,
        "type": "Warning",
    }


def reason_for(documents, *concerns):
    return signs.hopeless(documents, concerns, NOW)


@pytest.mark.parametrize("reason", sorted(signs.NO_IMAGE))
def test_an_image_that_is_missing_ends_a_wait_with_the_runtime_s_words(reason):
    documents = {"pods": [pod(waiting={"reason": reason, "message": "no such image: x:1"})]}
    assert reason_for(documents, "pod/agent") == (
        "pod agent: container main has no image: no such image: x:1"
    )


CRASHING = {"reason": "CrashLoopBackOff"}


def test_a_container_that_crashes_again_and_again_ends_a_wait_with_its_exit_code():
    ended = {"exitCode": 3, "reason": "Error", "message": "config.yaml:3: no such field\n"}
    documents = {"pods": [pod(waiting=CRASHING, restarts=2, ended=ended)]}
    assert reason_for(documents, "pod/x") == (
        "pod agent: container main crashes again and again, last with exit code 3"
        " (config.yaml:3: no such field)"
    )


@pytest.mark.parametrize(
    ("restarts", "ended"),
    [(1, {"exitCode": 3}), (5, {"exitCode": 137}), (5, {"exitCode": 143}), (5, {"exitCode": 0})],
    ids=["once", "killed", "asked to end", "ended well"],
)
def test_who_was_ended_by_others_may_come_back(restarts, ended):
    """Tests kill agents, and a first crash may be a neighbour's that was not up yet."""
    assert reason_for({"pods": [pod(waiting=CRASHING, restarts=restarts, ended=ended)]}) is None


def test_who_needs_more_memory_than_it_gets_does_not_come_back():
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    assert reason_for({"pods": [pod(waiting=CRASHING, restarts=2, ended=ended)]})


def test_a_pod_that_failed_is_never_ready_again_but_may_be_waited_for_as_failed():
    refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no rdma/hca"}
    documents = {"pods": [pod("job", **refused)]}
    expected = "pod job failed: UnexpectedAdmissionError no rdma/hca"
    assert reason_for(documents, "pod/job", "--for=condition=Ready") == expected
    assert reason_for(documents, "pod/other", "--for=condition=Ready") is None
    assert reason_for(documents, "pod/job", "--for=jsonpath={.status.phase}=Failed") is None


def test_a_refusal_of_what_is_waited_for_ends_the_wait():
    documents = {"events": [event("NetworksRefused", "there is no network x")]}
    expected = "Pod agent: NetworksRefused: there is no network x"
    assert reason_for(documents, "pod/agent") == expected
    assert reason_for(documents, "pod") == expected
    assert reason_for(documents, "pod/other", "node") is None


def test_a_refusal_from_before_the_wait_is_another_s_story():
    early = event("NetworksRefused", "there is no network x", when="2026-11-22T11:59:59Z")
    assert reason_for({"events": [early]}, "pod/agent") is None


def test_the_same_failure_again_is_no_news():
    """The kubelet tells it each time with another number of the sandbox, and counts."""
    first = event("FailedCreatePodSandBox", 'sandbox "5fe0a1": try again')
    again = event("FailedCreatePodSandBox", 'sandbox "77cd02": try again', count=2)
    other = event("FailedCreatePodSandBox", 'sandbox "77cd02": no card is free')
    seen = {*signs.facts({"events": [first]})}
    assert {*signs.facts({"events": [again]})} == seen
    assert {*signs.facts({"events": [other]})} != seen


def test_every_step_of_a_pod_is_news():
    steps = [
        pod(phase="Pending", waiting={"reason": "ContainerCreating"}),
        pod(),
        pod(conditions=[{"type": "Ready", "status": "True"}]),
        pod(restarts=1),
    ]
    facts = [frozenset(signs.facts({"pods": [step]})) for step in steps]
    assert len(set(facts)) == len(steps)


def test_a_node_s_heartbeat_is_no_news_and_a_new_resource_is():
    def node(when, **allocatable):
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": when}
        status = {"conditions": [condition], "allocatable": allocatable}
        return {"metadata": {"name": "n", "uid": "u", "labels": {}}, "status": status}

    def facts(item):
        return {*signs.facts({"nodes": [item]})}

    assert facts(node("1", cpu="2")) == facts(node("2", cpu="2"))
    assert facts(node("1", cpu="2")) != facts(node("1", cpu="2", rdma="1k"))


def test_the_summary_names_what_is_not_ready_and_the_last_warnings():
    documents = {
        "pods": [pod("waits", phase="Pending"), pod("done", phase="Succeeded")],
        "events": [event("FailedScheduling", "Insufficient rdma/hca", name="waits")],
    }
    assert signs.summary(documents).splitlines() == [
        "    pod default/waits is Pending",
        "    waits: FailedScheduling: Insufficient rdma/hca",
    ]


def test_the_summary_shows_the_last_of_warnings_even_of_one_moment():
    warnings = [event("FailedMount", f"volume {number}") for number in range(9)]
    documents = {"events": [event("FailedScheduling", "first", when="2026-11-22"), *warnings]}
    assert signs.summary(documents, lines=9).count("FailedMount: volume") == len(warnings)
    assert "first" not in signs.summary(documents, lines=9)
