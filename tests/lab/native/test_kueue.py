"""The real Kueue: a queue counts cards by claims, admits a job and lets the next one wait.

How it runs says tests/kit/kueue.py; where it puts pods, test_placement.py.
"""

import pytest

from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster, waiting
from tests.kit import manifests
from tests.kit.claiming import CLAIMS, agents, device_nodes, pod
from tests.kit.kueue import API, LABEL, RESERVED, admitted, conditions, kueue, names_of

# Slow: to build it takes many minutes.
pytestmark = pytest.mark.slow

QUEUE, COUNTED, CLASS, QUOTA = "cards", "rdma-shares", "rdma-shared", 2
# The class of claims that counts as a resource of its own.
COUNTING = {"deviceClassMappings": [{"name": COUNTED, "deviceClassNames": [CLASS]}]}


@pytest.fixture(scope="module")
def lab(ethernet):
    """The agents, which offer shares of cards to claims."""
    with agents(ethernet) as installed:
        yield installed


def made(kind, name, **spec):
    """An object of Kueue."""
    metadata = {"name": name, **({"namespace": "default"} if kind == "LocalQueue" else {})}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def queues():
    """One queue that has so many shares of cards to give, and its local queue in a namespace."""
    resource = {"name": COUNTED, "nominalQuota": str(QUOTA)}
    flavors = [{"name": QUEUE, "resources": [resource]}]
    groups = [{"coveredResources": [COUNTED], "flavors": flavors}]
    return (
        made("ResourceFlavor", QUEUE),
        made("ClusterQueue", QUEUE, namespaceSelector={}, resourceGroups=groups),
        made("LocalQueue", QUEUE, clusterQueue=QUEUE),
    )


def template(name="share", **devices):
    """One share of a card, and what else is said of devices."""
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
    return manifests.manifest(
        CLAIMS,
        "ResourceClaimTemplate",
        {"name": name, "namespace": "default"},
        {"spec": {"devices": {"requests": [{"name": "nic", "exactly": exactly}], **devices}}},
    )


def job(name, pods, share="share"):
    """A job whose pods have a claim each of a template, suspended until Kueue admits it."""
    body = pod(name, resourceClaimTemplateName=share)["spec"] | {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {LABEL: QUEUE}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": body},
        },
    }


@pytest.fixture(scope="module")
def queued(lab, tmp_path_factory):
    """Kueue, a queue and a template."""
    gates = {"DynamicResourceAllocation": True}
    with kueue(lab, tmp_path_factory.mktemp("kueue"), gates, resources=COUNTING):
        cluster.apply(lab, *queues(), template())
        cluster.wait(lab, f"clusterqueue/{QUEUE}", "--for=condition=Active")
        yield lab
        gone = ("--ignore-not-found", "--wait")
        cluster.kubectl(lab, "delete", "job", "first", "second", "third", *gone)
        cluster.kubectl(lab, "delete", f"localqueue/{QUEUE}", f"clusterqueue/{QUEUE}", *gone)
        cluster.kubectl(lab, "delete", "resourceclaimtemplate", "share", "told", *gone)
        cluster.kubectl(lab, "delete", f"resourceflavor/{QUEUE}", *gone)


def test_a_job_within_the_quota_of_cards_runs_and_the_next_waits_until_it_has_gone(queued):
    """Each pod of the first opens its card; of the second there is no pod before."""
    cluster.apply(queued, job("first", QUOTA))
    waiting.until(queued, "the pods of the job", lambda: len(names_of(queued, "first")) == QUOTA)
    names = names_of(queued, "first")
    cluster.ready(queued, *names)
    assert all(device_nodes(queued, name) for name in names)
    assert admitted(queued, "first")["resourceUsage"] == {COUNTED: str(QUOTA)}
    cluster.apply(queued, job("second", 1))
    waiting.until(queued, "Kueue's word", lambda: RESERVED in conditions(queued, "second"))
    status, message = conditions(queued, "second")[RESERVED]
    assert status == "False"
    assert f"insufficient unused quota for {COUNTED} in flavor {QUEUE}" in message
    assert not names_of(queued, "second")
    cluster.kubectl(queued, "delete", "job", "first", "--wait")
    waiting.until(queued, "the pod of the other job", lambda: names_of(queued, "second"))
    cluster.ready(queued, *names_of(queued, "second"))


def test_a_template_with_parameters_is_refused_by_kueue_itself(queued):
    """So they have to stand in a DeviceClass, of which Kueue reads the name alone."""
    parameters = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters", "mtu": 1400}
    config = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    cluster.apply(queued, template("told", config=config), job("third", 1, "told"))
    said = waiting.until(queued, "Kueue's word", lambda: conditions(queued, "third"))
    assert any("device config is not supported" in message for _, message in said.values())
    assert not names_of(queued, "third")
