"""Mistakes that are not of RDMA, and one that is: the first five lines of explain name the cause.

The Events are those of a real scheduler, kubelet and API server, whose words explain knows. The
cluster has the agents of preset `default` on constructed cards.
"""

import json

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.documents.shell import Shell
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # the installation alone takes a minute

EXAMPLE = scc.examples() / "nics"
NODE, AGENTS, DAEMONSET, RESOURCE, SHARES = (
    "node-1",
    "kube-rdma",
    "kube-rdma-agent",
    "rdma/nic",
    128,
)
SPACE = "mistakes"
ONE = {RESOURCE: 1}
PRESENT = "feature.node.kubernetes.io/pci-15b3.present"


@pytest.fixture(scope="module")
def lab(native):
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", f"{EXAMPLE}/agent.yaml")
    cluster.kubectl(native, "create", "namespace", SPACE)
    cluster.rollout(native, DAEMONSET, AGENTS)
    cluster.wait_for_resource(native, RESOURCE, SHARES, node=NODE)
    yield native
    cluster.kubectl(native, "delete", "namespace", SPACE)
    words = ("--cascade=foreground", "--wait", "--ignore-not-found")
    cluster.kubectl(native, "delete", "-f", f"{EXAMPLE}/agent.yaml", *words)


def pod(name, **spec):
    return sleeping_pod(name, namespace=SPACE, limits=ONE, terminationGracePeriodSeconds=1, **spec)


def volume(name, **source):
    mounts = {"volumes": [{"name": "v", **source}]}
    made = pod(name, **mounts)
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return made


def claiming(name, **claim):
    made = pod(name, resourceClaims=[{"name": "nic", **claim}])
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    return made


def storage(name, storage_class):
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": storage_class}
    spec["resources"] = {"requests": {"storage": "1Gi"}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec} | {
        "metadata": {"name": name, "namespace": SPACE}
    }


def claim(name, device_class):
    exactly = {"exactly": {"deviceClassName": device_class}, "name": "nic"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"} | {
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"devices": {"requests": [exactly]}},
    }


def deployment(name, **spec):
    made = pod(name, **spec)
    made["metadata"] = {"labels": {"app": name}}
    del made["apiVersion"], made["kind"]
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": made}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec} | {
        "metadata": {"name": name, "namespace": SPACE}
    }


def limited(name):
    made = deployment(name)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = ONE | {"memory": "64Gi"}
    return made


LIMIT = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "per-container", "namespace": SPACE},
    "spec": {"limits": [{"type": "Container", "max": {"memory": "4Gi"}}]},
}
SECRET = {"imagePullSecrets": [{"name": "team-registry"}], "nodeName": NODE}
UNPULLABLE = pod("34", **SECRET)
UNPULLABLE["spec"]["containers"][0]["image"] = "registry.invalid/nccl:1"


def five(lab, target):
    """The first five lines, as a stranger sees them in 100 columns."""
    with Shell({"KUBECONFIG": str(lab.kubeconfig), "COLUMNS": "100"}) as shell:
        code, printed = shell.run(f"kube-rdma explain {target}")
    return code, " ".join(" ".join(printed.splitlines()[:5]).split()), printed


@pytest.mark.parametrize(
    ("documents", "reason", "kind", "cause", "fix"),
    [
        (
            (pod("31", nodeSelector={PRESENT: "true"}),),
            *("FailedScheduling", "pod", f"{PRESENT}=true, and the node has no such label"),
            "Take it out of nodeSelector",
        ),
        (
            (volume("33", configMap={"name": "nccl-topo"}),),
            *(
                "FailedMount",
                "pod",
                'not RDMA: FailedMount: MountVolume.SetUp failed for volume "v"',
            ),
            f"Create configmap nccl-topo in namespace {SPACE}",
        ),
        (
            (UNPULLABLE,),
            *("FailedToRetrieveImagePullSecret", "pod", "(team-registry)"),
            f"Create secret team-registry in namespace {SPACE}",
        ),
        (
            (
                storage("dataset", "fast-nvme"),
                volume("35", persistentVolumeClaim={"claimName": "dataset"}),
            ),
            *("ProvisioningFailed", "pod", "PersistentVolumeClaim dataset: "),
            "in place of fast-nvme",
        ),
        (
            (claim("c36", "rdma-dranet"), claiming("36", resourceClaimName="c36")),
            *("FailedScheduling", "pod", "rdma-dranet"),
            "in place of rdma-dranet",
        ),
        (
            (claiming("37", resourceClaimTemplateName="all-nics"),),
            *("FailedResourceClaimCreation", "pod", '"all-nics" not found'),
            "adminAccess needs the label",
        ),
        (
            (LIMIT, limited("29")),
            *("FailedCreate", "deployment", "maximum memory usage per Container is 4Gi"),
            f"Keep to the maximum that a LimitRange of namespace {SPACE} sets",
        ),
    ],
    ids=lambda value: value[-1]["metadata"]["name"] if isinstance(value, tuple) else "",
)
def test_the_first_five_lines_name_cause_and_remedy(lab, documents, reason, kind, cause, fix):
    name = documents[-1]["metadata"]["name"]
    cluster.apply(lab, *documents)
    try:
        cluster.until_event(lab, reason, "" if reason != "FailedScheduling" else "0/")
        code, shown, printed = five(lab, f"{kind}/{SPACE}/{name}")
    finally:
        for one in documents:
            target = (one["kind"].lower(), one["metadata"]["name"])
            cluster.kubectl(lab, "-n", SPACE, "delete", *target, "--ignore-not-found")
    assert code == 1, printed
    assert cause in shown, printed
    assert fix in shown, printed


def test_pod_security_and_taints_and_the_kubelets_word(lab):
    level = "pod-security.kubernetes.io/enforce"
    cluster.kubectl(lab, "label", "namespace", SPACE, f"{level}=restricted")
    try:
        cluster.apply(lab, deployment("30"))
        cluster.until_event(lab, "FailedCreate", "PodSecurity")
        _, shown, printed = five(lab, f"deployment/{SPACE}/30")
    finally:
        cluster.kubectl(lab, "-n", SPACE, "delete", "deployment", "30")
        cluster.kubectl(lab, "label", "namespace", SPACE, f"{level}-")
    assert "Take out what level restricted forbids" in shown, printed
    nodes = [one["metadata"]["name"] for one in cluster.get(lab, "nodes")["items"]]
    cluster.kubectl(lab, "taint", "nodes", *nodes, "nvidia.com/gpu=present:NoSchedule")
    try:
        cluster.apply(lab, pod("32"))
        cluster.until_event(lab, "FailedScheduling", "taint")
        _, shown, printed = five(lab, f"pod/{SPACE}/32")
        status = {"phase": "Failed", "reason": "TopologyAffinityError"}
        status["message"] = "Pod was rejected: Resources cannot be allocated with Topology locality"
        words = ("patch", "pod", "32", "--subresource=status", "--type=merge")
        cluster.kubectl(lab, "-n", SPACE, *words, "-p", json.dumps({"status": status}))
        _, refused, whole = five(lab, f"pod/{SPACE}/32")
    finally:
        cluster.kubectl(lab, "taint", "nodes", *nodes, "nvidia.com/gpu-")
        cluster.kubectl(lab, "-n", SPACE, "delete", "pod", "32")
    assert "the node has the taint nvidia.com/gpu=present:NoSchedule" in shown, printed
    assert "Add a toleration for nvidia.com/gpu" in shown, printed
    assert "Ask for no more than one NUMA node" in refused, whole
