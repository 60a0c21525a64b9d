"""The Event that says why a pod does not run, its sentence and its remedy.

Messages are those of Kubernetes 1.36 as its components write them, with names of this test.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.doctor.rules.waiting import telling, text_of, waits_for
from kube_rdma.model.finding import Stage
from kube_rdma.model.reports import ClusterEvent

MOUNT = 'MountVolume.SetUp failed for volume "topo" : configmap "nccl-topo" not found'
SECRET = "Unable to retrieve some image pull secrets (team-registry); attempting to pull the image"
PULL = 'Failed to pull image "registry.invalid/a:1": failed to authorize'


def event(reason, note, second=0, *, warning=True, kind="Pod"):
    last = f"2026-01-01T00:00:{second:02}Z"
    return ClusterEvent(kind, "train", "w-0", reason, note, last, warning)


NODES = "FailedScheduling: 0/2 nodes are available:"
WRAPPED = 'Error creating: pods "a" is forbidden: '
DENIED = f"FailedCreate: {WRAPPED.rstrip()}"
NO_CLASS = 'ProvisioningFailed: storageclass.storage.k8s.io "fast-nvme" not found'
NO_TEMPLATE = 'FailedResourceClaimCreation: resourceclaimtemplate.resource.k8s.io "all" not found'
NO_LIMIT = f"{DENIED} maximum memory usage per Container is 4Gi, but limit is 64Gi"
NO_NUMA = "TopologyAffinityError: Resources cannot be allocated with Topology locality"


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        (f"FailedMount: {MOUNT}", "Create configmap nccl-topo in namespace train"),
        ('FailedMount: volume "k" : secret "keys" not found', "Create secret keys in namespace"),
        (f"FailedToRetrieveImagePullSecret: {SECRET}", "Create secret team-registry in namespace"),
        (f"Failed: {PULL}", "Write an image that the node can pull"),
        (f"{NODES} pod has unbound immediate PersistentVolumeClaims", "describe pvc says why"),
        (NO_CLASS, "in place of fast-nvme"),
        (f"{NODES} 1 node(s) had untolerated taint(s).", "Add a toleration"),
        (f"{NODES} 2 node(s) didn't match Pod's node affinity/selector.", "Take the label out"),
        (f'{DENIED} violates PodSecurity "restricted:latest": a', "what level restricted forbids"),
        (NO_LIMIT, "Keep to the maximum that a LimitRange of namespace train sets"),
        (f"{DENIED} exceeded quota: team, requested: a", "have ResourceQuota team of namespace"),
    ],
)
def test_a_fault_that_is_not_of_rdma_says_so_and_has_a_remedy(why, remedy):
    found = waits_for(why, "train")
    assert remedy in found.remedy
    assert found.problem == f"not RDMA: {why.replace(WRAPPED, '')}"


@pytest.mark.parametrize(
    ("why", "stage", "remedy"),
    [
        (f"{NODES} 1 Insufficient rdma/nic, 1 other.", Stage.SCHEDULER, "Ask for less of rdma/nic"),
        (f"{NODES} device class dra does not exist.", Stage.SCHEDULER, "in place of dra"),
        (NO_TEMPLATE, Stage.SCHEDULER, "Apply all; if it is refused, adminAccess needs"),
        (NO_NUMA, Stage.KUBELET, "Ask for no more than one NUMA node"),
        ("Evicted: The node was low on memory", Stage.KUBELET, ""),
    ],
)
def test_a_fault_that_may_be_of_rdma_is_in_the_words_of_who_found_it(why, stage, remedy):
    found = waits_for(why, "train")
    assert (found.stage, found.problem) == (stage, why)
    assert remedy in found.remedy


def test_kube_rdmas_own_refusal_is_told_without_the_words_around_it():
    why = (
        'FailedCreatePodSandBox: rpc error: plugin type="kube-rdma" failed (add): IPPool tiny: no '
        "address is free; give it a further range."
    )
    found = waits_for(why, "train")
    assert found.problem == "IPPool tiny: no address is free"
    assert found.remedy == "The Event says: give it a further range"
    assert found.stage is Stage.AGENT


def test_the_last_warning_counts_and_repeats_of_it_do_not():
    events = (
        event("FailedScheduling", "0/2 nodes are available", 1),
        event("FailedMount", MOUNT, 2),
        event("BackOff", "Back-off restarting failed container", 3),
        event("Pulled", "Container image is there", 4, warning=False),
    )
    assert telling(events) == events[1]
    assert telling(events[2:]) == events[2]
    assert telling(events[3:]) is telling(()) is None


def test_the_missing_secret_is_the_cause_of_a_failed_pull():
    secret = event("FailedToRetrieveImagePullSecret", SECRET, 1)
    pull, error = event("Failed", PULL, 2), event("Failed", "Error: ErrImagePull", 3)
    assert telling((secret, pull, error)) == secret
    assert telling((pull, error)) == pull


def test_a_text_is_one_line_without_the_talk_of_preemption():
    note = (
        "0/2 nodes are available:\n\t2 Insufficient rdma/nic. preemption: 0/2 nodes are available"
    )
    said = "FailedScheduling: 0/2 nodes are available: 2 Insufficient rdma/nic."
    assert text_of(event("FailedScheduling", note)) == said
    claim = event("ProvisioningFailed", "no class", kind="PersistentVolumeClaim")
    assert text_of(claim) == "ProvisioningFailed: PersistentVolumeClaim w-0: no class"


@given(st.text(), st.text(max_size=30))
def test_whatever_an_event_says_gives_a_sentence_and_no_word_of_a_shell(note, name):
    """Names of others in a remedy are of the alphabet of Kubernetes, whatever a message holds."""
    texts = (note, f'configmap "{name}" not found', f"exceeded quota: {name}, requested")
    for text in texts:
        said = text_of(event("FailedMount", text))
        assert len(said) <= 400
        assert not set(waits_for(said, "a b").remedy) & set("`$&|<>\\\n")
