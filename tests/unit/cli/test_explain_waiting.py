"""`kube-rdma explain` of pods that do not run, by the Events of a cluster in memory."""

from __future__ import annotations

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import DEPLOYMENTS
from kube_rdma.explain.workloads import kinds
from kube_rdma.reports.cluster import EVENT
from tests.kit import explained as kit
from tests.unit.cli.test_explain import mpi_job, run, written

MOUNT = 'SetUp failed for volume "t" : configmap "nccl-topo" not found'


def put_event(server, reason, message, name="waits", kind="Pod", second=1, **more):
    """An Event; the API server finds it by its object."""
    about = {"kind": kind, "name": name, "namespace": "default"}
    if kind == "Pod" and (pod := next(iter(server.documents("pods")), None)):
        about["uid"] = pod["metadata"]["uid"]
    meta = {"name": f"{name}.{reason}.{second}".lower(), "namespace": "default"}
    fields = {"reason": reason, "message": message, "type": "Warning", "involvedObject": about}
    fields["lastTimestamp"] = f"2026-01-01T00:00:{second:02}Z"
    server.put(EVENT, {"metadata": meta} | fields | more)


def lines(server, *words):
    """The first five lines, which a stranger sees; and the exit code."""
    result = run(server, *words)
    return result.stdout.splitlines()[:5], result.exit_code


def waiting(server, node=kit.NODE_NAME, **spec):
    document = kit.pod("waits", "Pending", node=node)
    document["spec"] |= spec
    kit.put_pod(server, document)


def test_a_missing_config_map_stands_in_the_first_lines():
    """Forty mistakes, 33: the last warning counts, and none of an earlier pod of this name."""
    server = kit.server()
    waiting(server)
    put_event(server, "FailedScheduling", "0/1 nodes are available", second=1)
    put_event(server, "FailedMount", MOUNT, second=2)
    put_event(server, "Pulled", "it is here", second=3, type="Normal")
    old = {"kind": "Pod", "name": "waits", "namespace": "default", "uid": "another"}
    put_event(server, "Evicted", "long ago", second=4, involvedObject=old)
    shown, code = lines(server, "pod/waits")
    assert shown[:4] == [
        "pod default/waits · Pending · node node-1",
        "✗ The kubelet",
        f"    Why  not RDMA: FailedMount: {MOUNT}",
        "    Fix  Create configmap nccl-topo in namespace default, or take it out of the pod",
    ]
    assert code == 1


def test_an_unbound_claim_is_told_with_the_class_that_is_missing():
    """Forty mistakes, 35: the pod's Event names neither the claim nor the class."""
    server = kit.server()
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "dataset"}}]
    waiting(server, node="", volumes=volumes)
    put_event(
        server, "FailedScheduling", "0/2 nodes: pod has unbound immediate PersistentVolumeClaims"
    )
    gone = 'storageclass.storage.k8s.io "fast-nvme" not found'
    put_event(server, "ProvisioningFailed", gone, "dataset", "PersistentVolumeClaim")
    put_event(server, "ProvisioningFailed", "other", "another", "PersistentVolumeClaim", 9)
    shown, _ = lines(server, "pod/waits")
    assert f"PersistentVolumeClaim dataset: {gone}" in " ".join(" ".join(shown).split())
    assert "in place of fast-nvme" in " ".join(shown)


def test_a_pod_that_the_kubelet_refused_is_told_by_its_status():
    """Forty mistakes, 40."""
    server = kit.server()
    ended = kit.pod("waits", "Failed")
    text = "Pod was rejected: Resources cannot be allocated with Topology locality"
    ended["status"] |= {"reason": "TopologyAffinityError", "message": text}
    kit.put_pod(server, ended)
    shown, _ = lines(server, "pod/waits")
    assert f"Why TopologyAffinityError: {text}" in " ".join(" ".join(shown).split())
    assert "no more than one NUMA node" in shown[4]


PRESENT = "feature.node.kubernetes.io/pci-15b3.present"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "taints", "why", "fix"),
    [
        (
            {"nodeSelector": {PRESENT: "true"}},
            *([], f"{PRESENT}=true, and the node has no such label", "Take it out of nodeSelector"),
        ),
        (
            {},
            [TAINT],
            "nearest is node-1: the node has the taint nvidia.com/gpu=present:NoSchedule",
            "Add a toleration for nvidia.com/gpu",
        ),
        (
            {"nodeSelector": {"kubernetes.io/hostname": "node-2"}},
            *(
                [],
                "nearest is node-2: the pod asks for 1, and the node offers 0",
                "kube-rdma status",
            ),
        ),
        ({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}, [TAINT], "", ""),
        ({"tolerations": [{"operator": "Exists"}]}, [TAINT], "", ""),
        ({}, [TAINT | {"effect": "PreferNoSchedule"}], "", ""),
    ],
    ids=["31-label", "32-taint", "39-agent", "tolerated", "all-tolerated", "preferred"],
)
def test_the_label_or_taint_that_leaves_no_node_is_named(spec, taints, why, fix):
    """Forty mistakes: the scheduler's Event counts nodes and names neither."""
    server = kit.server()
    (node,) = server.documents("nodes")
    meta = {"name": kit.NODE_NAME, "labels": node["metadata"]["labels"]}
    server.put(NODE, node | {"metadata": meta, "spec": {"taints": taints}})
    labels = {"kubernetes.io/hostname": "node-2"}
    other = {"metadata": {"name": "node-2", "labels": labels}, "status": {"allocatable": {}}}
    server.put(NODE, other)
    waiting(server, node="", **spec)
    put_event(server, "FailedScheduling", "0/2 nodes are available: 2 node(s) had something")
    shown, code = lines(server, "pod/waits")
    text = " ".join(" ".join(shown).split())
    assert code == 1
    assert "✗ The scheduler" in shown[1]
    assert (why or "had something") in text
    assert fix in text


def deployment(name="infer"):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": kit.pod(node="")["spec"]}
    meta = {"name": name, "namespace": "default"}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


DENIED = 'Error creating: pods "infer-5d-x" is forbidden: '
LIMIT = f"{DENIED}maximum memory usage per Container is 4Gi, but limit is 64Gi"
SECURITY = f'{DENIED}violates PodSecurity "restricted:latest": unrestricted capabilities'


@pytest.mark.parametrize(
    ("message", "fix"),
    [(LIMIT, "Keep to the maximum that a LimitRange"), (SECURITY, "what level restricted forbids")],
    ids=["29-limitrange", "30-podsecurity"],
)
def test_a_workload_without_pods_is_told_by_the_events_of_its_replica_set(message, fix, tmp_path):
    """Forty mistakes, 29 and 30: by its name, and by its file."""
    server = kit.server()
    server.put(DEPLOYMENTS, deployment())
    put_event(server, "FailedCreate", message, "infer-5d", "ReplicaSet")
    put_event(server, "FailedCreate", "of another", "inference-5d", "ReplicaSet", second=9)
    path = written(tmp_path, deployment())
    for words in (("deployment/infer",), ("deploy/default/infer",), ("-f", path)):
        shown, code = lines(server, *words)
        assert (code, shown[1]) == (1, "✗ Admission")
        assert "not RDMA: FailedCreate: " in shown[2]
        assert fix in " ".join(" ".join(shown).split())
    created = {"kind": "ReplicaSet", "second": 5, "type": "Normal"}
    put_event(server, "SuccessfulCreate", "Created pod: infer-5d-x", "infer-5d", **created)
    assert lines(server, "deployment/infer")[1] == 0, "and one was created since"
    created = {"type": "Normal", "second": 5, "kind": "ReplicaSet"}
    put_event(server, "SuccessfulCreate", "Created pod: infer-5d-x", "infer-5d", **created)
    assert lines(server, "deployment/infer")[1] == 0, "a pod was created since"


def test_a_workload_stands_for_its_pod_that_waits():
    server = kit.server()
    server.put(DEPLOYMENTS, deployment())
    for name, phase in (("a-runs", "Running"), ("b-waits", "Pending"), ("z-other", "Pending")):
        pod = kit.pod(name, phase)
        pod["metadata"]["labels"] = {"app": "other" if name[0] == "z" else "infer"}
        kit.put_pod(server, pod)
    assert "default/b-waits · Pending" in lines(server, "deployments/infer")[0][0]
    with pytest.raises(Refused, match="there is no Deployment gone in namespace default"):
        run(server, "deployment/gone")


def test_who_may_read_no_events_is_told_by_the_conditions():
    server = kit.server()
    waiting(server, node="")
    (pod,) = server.documents("pods")
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: 1 Insufficient rdma/hca"}
    ]
    kit.put_pod(server, pod)
    server.forbidden.add(("list", "events"))
    document = json.loads(run(server, "pod/waits", "--json").stdout)
    assert document["why"] == "0/1 nodes: 1 Insufficient rdma/hca"
    assert "Ask for less of rdma/hca" in document["obstacles"][0]["remedy"]


def test_a_job_of_another_project_is_known_by_its_pods_owners():
    """Its launcher is of a Job that it has made; other jobs begin with the same letters."""
    kind = kinds()["mpijob"]
    server = kit.server(kinds=(*kit.KINDS, kind))
    job = mpi_job()
    job["metadata"]["namespace"] = "default"
    server.put(kind, job)
    shown, code = lines(server, "mpijob/ring")
    assert (code, shown[0]) == (1, "pod default/ring · does not exist yet · on no node yet")
    owners = (("w", "MPIJob", "ring"), ("l", "Job", "ring-launcher"), ("a", "MPIJob", "rings"))
    for name, owner, of in owners:
        pod = kit.pod(name, "Pending" if name != "w" else "Running", node="")
        made_by = {"apiVersion": "v1", "kind": owner, "name": of, "uid": "u"}
        pod["metadata"]["ownerReferences"] = [made_by]
        kit.put_pod(server, pod)
    assert "default/l · Pending" in lines(server, "mpijobs/ring")[0][0]


@pytest.mark.parametrize(
    "selector", ["app=x", ["app"], {"matchLabels": ["app"]}, {"matchExpressions": [{"key": 1}]}]
)
def test_a_selector_of_another_form_is_none(selector):
    """The owner counts, as where a kind has no selector."""
    kind = kinds()["mpijob"]
    server = kit.server(kinds=(*kit.KINDS, kind))
    job = mpi_job()
    job["metadata"]["namespace"] = "default"
    job["spec"]["selector"] = selector
    server.put(kind, job)
    pod = kit.pod("w", "Pending", node="")
    owner = {"apiVersion": "v1", "kind": "MPIJob", "name": "ring", "uid": "u"}
    pod["metadata"]["ownerReferences"] = [owner]
    kit.put_pod(server, pod)
    assert "default/w · Pending" in lines(server, "mpijob/ring")[0][0]


def test_the_pods_of_a_workload_are_those_of_its_whole_selector():
    kind = kinds()["deployment"]
    server = kit.server(kinds=(*kit.KINDS, kind))
    selector = {
        "matchLabels": {"app": "infer"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["gpu", "cpu"]},
            {"key": "canary", "operator": "DoesNotExist"},
            {"key": "app", "operator": "Exists"},
            {"key": "zone", "operator": "NotIn", "values": ["z"]},
        ],
    }
    template = {"metadata": {"labels": {"app": "infer"}}, "spec": kit.pod("t")["spec"]}
    server.put(
        kind,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "infer", "namespace": "default"},
            "spec": {"selector": selector, "template": template},
        },
    )
    own = {"app": "infer", "tier": "gpu"}
    others = ({**own, "canary": "1"}, {**own, "tier": "x"}, {**own, "zone": "z"}, {"tier": "gpu"})
    for number, labels in enumerate((*others, own)):
        pod = kit.pod(f"p{number}", "Pending", node="")
        pod["metadata"]["labels"] = labels
        kit.put_pod(server, pod)
    assert "default/p4 · Pending" in lines(server, "deploy/infer")[0][0]


@pytest.mark.parametrize(
    ("word", "kind"),
    [("deploy", "Deployment"), ("STS", "StatefulSet"), ("daemonsets", "DaemonSet"), ("lws", None)],
)
def test_kinds_have_the_words_of_kubectl(word, kind):
    assert kinds()[word.lower()].kind == (kind or "LeaderWorkerSet")
    assert not {"", "node", "pod"} & kinds().keys()


@pytest.mark.parametrize(
    ("reason", "note", "fix"),
    [
        ("PreflightFailed", "Not well: 2 of 8 pairs; node-2 mlx5_0: …", "get bandwidthchecks"),
        (
            "PreflightWaiting",
            "Preflight waits: 7 of 8 pods can measure; 1 is not there.",
            "get pods",
        ),
    ],
)
def test_a_gang_that_does_not_start_is_told_by_the_event_of_its_preflight(reason, note, fix):
    """And not by the kubelet's, that its container is held back."""
    server = kit.server()
    waiting(server)
    put_event(server, reason, note, second=1)
    put_event(server, "BackOff", "Back-off restarting failed container", second=2)
    shown, code = lines(server, "pod/waits")
    assert f"Why {reason}: {note}" in " ".join(" ".join(shown).split())
    assert fix in " ".join(" ".join(shown).split())
    assert code == 1
