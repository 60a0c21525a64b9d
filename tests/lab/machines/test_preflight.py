"""A Job of eight pods on four nodes measures its rails, and starts only if all of them are well.

The image of kube-rdma measures, with perftest, on soft cards. A card loses a fifth of what it gets,
or of what it sends, by a rule of iptables in the network of its pod.
"""

import json
from contextlib import contextmanager

import pytest

from kube_rdma.attach.documents.network_status import OWN_ANNOTATION
from kube_rdma.model import preflight as model
from kube_rdma.preflight.documents import read_verdict
from kube_rdma_lab import cluster, waiting
from tests.kit import manifests
from tests.kit.gangs import BOTH, LOSS, makers, result
from tests.kit.pods import in_network, sleeping_pod
from tests.kit.two_rails import installed
from tests.kit.walks import Walker

JOB, PODS, NODES = "train", 8, [f"node-{number}" for number in range(1, 5)]
TOO_FAST = {model.MIN_BANDWIDTH: "9000G"}  # no rail is so fast


def _slow(values):
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


@pytest.fixture(scope="module")
def rails(leaves):
    """Agents and controller of preset rails, with preflight and with addresses for two rails."""
    with installed(leaves, "controller.preflight=true"):
        yield leaves


def job(**more):
    """A Job of eight pods with a card each, none of which is begun again."""
    annotations = {"k8s.v1.cni.cncf.io/networks": "kube-rdma/rails", model.REQUEST: "ring", **more}
    annotations[model.TOLERANCE] = "90%"  # soft cards of one machine share its processors
    pod = sleeping_pod("", limits={"rdma/nic": 1}, annotations=annotations)
    pod["spec"]["restartPolicy"] = "Never"
    template = {"metadata": {"annotations": annotations}, "spec": pod["spec"]}
    spec = {"parallelism": PODS, "completions": PODS, "backoffLimit": 0, "template": template}
    return manifests.manifest("batch/v1", "Job", JOB, spec)


@pytest.fixture
def trained(rails):
    """Start the Job; nothing of it is left afterwards."""

    def begin(**more):
        cluster.apply(rails, job(**more))
        return rails

    yield begin
    cluster.kubectl(rails, "delete", f"job/{JOB}", "--cascade=foreground", "--wait")
    cluster.kubectl(rails, "delete", "bandwidthchecks", "--all")


def pods(lab):
    return cluster.get(lab, "pods", f"-l={model.REQUEST}")["items"]


def begun(pod, name):
    """Whether a container of a pod runs, or ran."""
    status = pod["status"]
    every = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return any(one["name"] == name and "waiting" not in one["state"] for one in every)


def test_a_gang_on_good_rails_starts(trained):
    lab = trained()
    waiting.until(lab, "all main containers", lambda: _running(lab) == PODS)
    measured_well(lab)
    first = pods(lab)[0]["spec"]["initContainers"][0]
    assert first.get("securityContext", {}).get("privileged") is not True


def measured_well(lab):
    status = result(lab)
    assert (status["state"], status["pairsMeasured"]) == ("Well", PODS)


def job_set(**more):
    """A JobSet of two jobs, which are one gang and may begin again once."""
    spec = job(**more)["spec"] | {"parallelism": PODS // 2, "completions": PODS // 2}
    jobs = [{"name": "workers", "replicas": 2, "template": {"spec": spec}}]
    spec = {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 1}}
    version, name = "jobset.x-k8s.io/v1alpha2", {"name": JOB, "namespace": "default"}
    return manifests.manifest(version, "JobSet", name, spec)


def leader_worker_set(**more):
    """A LeaderWorkerSet of one group, whose leader measures too."""
    template = job(**more)["spec"]["template"]
    template["spec"]["restartPolicy"] = "Always"
    spec = {"leaderWorkerTemplate": {"size": PODS, "workerTemplate": template}}
    version, name = "leaderworkerset.x-k8s.io/v1", {"name": JOB, "namespace": "default"}
    return manifests.manifest(version, "LeaderWorkerSet", name, spec)


@pytest.fixture(scope="module")
def owners(rails, tmp_path_factory):
    """The controllers of JobSet and LeaderWorkerSet."""
    with makers(rails, tmp_path_factory.mktemp("gangs"), *BOTH):
        yield rails


@contextmanager
def applied(lab, made):
    """A gang for a while; nothing of it is left afterwards."""
    cluster.apply(lab, made)
    try:
        yield
    finally:
        cluster.kubectl(lab, "delete", made["kind"], JOB, "--cascade=foreground", "--wait")
        cluster.kubectl(lab, "delete", "bandwidthchecks", "--all")


@pytest.mark.slow
@pytest.mark.parametrize("gang", [job_set, leader_worker_set])
def test_a_gang_of_a_set_starts_on_good_rails(owners, gang):
    with applied(owners, made := gang()):
        waiting.until(owners, "all main containers", lambda: _running(owners) == PODS)
        measured_well(owners)
        (check,) = cluster.get(owners, "bandwidthchecks")["items"]
        assert check["spec"]["preflight"].startswith(made["kind"])


@pytest.mark.slow
def test_a_jobset_on_bad_rails_measures_again_as_often_as_it_may_begin_again(owners):
    with applied(owners, job_set(**TOO_FAST)):
        cluster.wait(owners, f"jobset/{JOB}", "--for=condition=Failed")
        assert cluster.get(owners, f"jobset/{JOB}")["status"]["restarts"] == 1
        left = [one for one in pods(owners) if refused(one)]
        attempts = {one["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for one in left}
        assert attempts == {"1"}
        assert _running(owners) == 0
        assert len(cluster.get(owners, "bandwidthchecks")["items"]) == 1


@pytest.mark.slow
def test_a_group_on_bad_rails_is_made_anew_and_measures_again(owners):
    """A restarted init container is enough for that."""
    with applied(owners, leader_worker_set(**TOO_FAST)):
        first = waiting.until(owners, "a verdict", lambda: refusals(owners))
        waiting.until(owners, "another", lambda: len(refusals(owners) - first) == PODS)
        assert _running(owners) == 0
        assert len(cluster.get(owners, "bandwidthchecks")["items"]) == 1


def refused(pod):
    """Whether a pod has a bad verdict on what it measured."""
    found = read_verdict(pod["metadata"]["annotations"].get(model.VERDICT, ""))
    return bool(found and not found.well and int(found.round, 16))


def refusals(lab):
    return {pod["metadata"]["uid"] for pod in pods(lab) if refused(pod)}


def _running(lab):
    return sum(begun(pod, "main") for pod in pods(lab))


@pytest.mark.parametrize("number", [0, 1, *_slow(range(2, 20))])
def test_a_gang_with_a_lossy_card_does_not_start_and_its_card_is_named(
    rails, trained, tmp_path, number
):
    lab = rails
    lossy, away = (NODES[(number + step) % len(NODES)] for step in (0, 2))
    cluster.kubectl(lab, "cordon", away)  # no plan before the card loses anything
    try:
        trained()
        waiting.until(lab, "all others", lambda: _measuring(lab) == PODS - 2)
        one = [pod for pod in pods(lab) if pod["spec"].get("nodeName") == lossy][number % 2]
        loss = f"iptables -I {('INPUT', 'OUTPUT')[number // 2 % 2]} {LOSS}"
        cluster.shell(lab, lossy, in_network(one["metadata"]["uid"], loss))
    finally:
        cluster.kubectl(lab, "uncordon", away)
    waiting.until(lab, "the verdict", lambda: result(lab))
    status = result(lab)
    assert status["state"] == "NotWell"
    assert len(status["suspects"]) == 1, status
    (suspect,) = status["suspects"]
    assert suspect["node"] == lossy
    (attached,) = json.loads(one_again(lab, one)["metadata"]["annotations"][OWN_ANNOTATION])
    assert suspect["device"] == attached["rdmaDevice"]
    waiting.until(lab, "the end of the Job", lambda: _failed(lab))
    assert _running(lab) == 0
    cluster.until_event(lab, "PreflightFailed", lossy)
    author_finds(lab, tmp_path, f"{lossy} {attached['rdmaDevice']}")


def author_finds(lab, folder, card):
    """Somebody with the rights of a namespace names the card by the page alone."""
    author = Walker(lab, "author", ["docs/verify.md"], folder)
    with author.granted("edit", namespace="default"):
        author.may("get", "bandwidthchecks", "-n", "default")
        _, events = author.does("kubectl events --types=Warning")
        _, told = author.does("kube-rdma explain pod/POD", POD=pods(lab)[0]["metadata"]["name"])
        _, checks = author.does("kubectl get bandwidthchecks -o yaml")
    assert "PreflightFailed" in events
    assert card in " ".join(events.split())
    assert card in " ".join(told.split())
    assert all(word in checks for word in card.split())


def one_again(lab, pod):
    return cluster.get(lab, f"pod/{pod['metadata']['name']}")


def _measuring(lab):
    return sum(begun(pod, model.MEASURES) for pod in pods(lab))


def _failed(lab):
    conditions = cluster.get(lab, f"job/{JOB}")["status"].get("conditions", ())
    return any(one["type"] == "Failed" and one["status"] == "True" for one in conditions)
