"""What is added to a pod, and that its own word counts more."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.admission.rules.completions import completions
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.rules.requests import POD_NETWORKS
from kube_rdma.model.admission import COMPLETE, AdmissionFacts, AdmissionSettings
from tests.kit.admission import VKE, asking, blocks, container, networks, template

ALL = {COMPLETE: "ipc-lock, shm=16Gi, pod-networks"}
ADD = ("spec", "containers", 0, "securityContext", "capabilities", "add", "-")


def made(*containers, **rest):
    return [(one.path, one.value) for one in completions(template(*containers, **rest))]


def test_ipc_lock_is_added_to_containers_with_shares():
    assert made(asking("rdma/a", 1), container(name="other")) == [(ADD, "IPC_LOCK")]
    assert made(container()) == []


@pytest.mark.parametrize(
    "security",
    [
        {"capabilities": {"add": ["IPC_LOCK"]}},
        {"capabilities": {"add": ["ALL"]}},
        {"capabilities": {"drop": ["ALL"]}},
        {"capabilities": {"drop": ["IPC_LOCK"]}},
        {"privileged": True},
        {"runAsNonRoot": True},
        {"runAsUser": 1000},
    ],
)
def test_ipc_lock_is_not_added_where_it_is_there_declined_or_no_help(security):
    assert made(asking("rdma/a", 1, security=security)) == []


def test_a_container_s_own_user_counts_more_than_the_pod_s():
    root = asking("rdma/a", 1, security={"runAsUser": 0})
    assert len(made(root, securityContext={"runAsUser": 5})) == 1
    assert made(asking("rdma/a", 1), securityContext={"runAsUser": 5}) == []


def test_shared_memory_is_added_when_it_is_asked_for():
    """One volume for all containers with shares; with the size that is asked for."""
    pod = (asking("rdma/a", 1), asking("rdma/a", 1, name="b"), container(name="c"))
    volume, *mounts = made(*pod, annotations={COMPLETE: "shm=16Gi"})
    memory = {"medium": "Memory", "sizeLimit": "16Gi"}
    assert volume == (("spec", "volumes", "-"), {"name": "kube-rdma-shm", "emptyDir": memory})
    assert [path for path, _ in mounts] == [
        ("spec", "containers", number, "volumeMounts", "-") for number in (0, 1)
    ]
    assert {one["mountPath"] for _, one in mounts} == {"/dev/shm"}
    ((_, default), *_) = made(*pod, annotations={COMPLETE: "shm"})
    assert default["emptyDir"]["sizeLimit"] == AdmissionSettings().shm_size


def test_memory_that_is_mounted_already_stays():
    pod = asking("rdma/a", 1, volumes=[("mine", "/dev/shm/")])
    assert made(pod, annotations={COMPLETE: "shm"}) == []


@given(st.integers(1, 9))
def test_blocks_are_written_for_each_card(cards):
    pod = template(asking(VKE, cards), annotations={COMPLETE: "pod-networks"})
    (one,) = completions(pod)
    assert one.path == ("metadata", "annotations", POD_NETWORKS)
    assert json.loads(one.value) == [{"cniConf": {"name": "rdma"}}] * cards


def test_a_block_is_copied_for_each_further_card():
    pod = {COMPLETE: "pod-networks", **blocks("mine")}
    ((_, text),) = made(asking(VKE, 3), annotations=pod)
    assert json.loads(text) == [{"cniConf": {"name": "mine"}}] * 3


@pytest.mark.parametrize(
    "annotations",
    [
        blocks("a", "b"),
        {POD_NETWORKS: '[{"cniConf": {"name": "a"}, "deviceConf": {"ifName": "x"}}]'},
        {POD_NETWORKS: "[]"},
        {POD_NETWORKS: "nonsense"},
        networks("net"),
    ],
)
def test_what_the_pod_says_of_its_networks_stays(annotations):
    pod = {COMPLETE: "pod-networks", **annotations}
    assert made(asking(VKE, 4), annotations=pod) == []


def test_a_pod_on_the_host_s_network_gets_no_block():
    assert made(asking(), annotations={COMPLETE: "pod-networks"}, hostNetwork=True) == []


def test_nothing_is_completed_where_the_pod_says_so():
    assert made(asking("rdma/a", 1), annotations={COMPLETE: "none"}) == []
    assert made(asking("rdma/a", 1), annotations={COMPLETE: ""}) == []


@pytest.mark.parametrize("word", ["shm=lots", "ipc-lock=1", "memlock", "shm=0"])
def test_a_word_that_means_nothing_is_a_warning(word):
    pod = template(asking("rdma/a", 1), annotations={COMPLETE: f"ipc-lock,{word}"})
    (finding,) = findings(pod)
    assert json.dumps(word) in finding.problem
    assert [one.path for one in completions(pod)] == [ADD]


def test_what_would_be_completed_is_no_fault():
    """Blocks that admission writes are not missed before it has."""
    pod = template(asking(), annotations=ALL)
    assert not findings(pod, AdmissionFacts(ip_pools=("rdma",)))
