"""What every manifest of ours has, and what becomes of it on other distributions."""

import json
from functools import cache
from pathlib import Path, PurePosixPath

import pytest
import yaml

from kube_rdma.adapters.cni.conf.places import find
from kube_rdma.adapters.runtime.cri import SOCKETS
from kube_rdma.attach.documents.network_definition import load
from kube_rdma.model.attach.attachment import NetworkKind
from kube_rdma_lab.build.images import TRAINING, VERBS
from kube_rdma_lab.paths import PACKAGE

ROOT = Path(__file__).parents[3]
IMAGE = "localhost/kube-rdma:dev"
SEED = "daemonset-document.yaml"  # as its document has it
WITH_NETWORKS = ("s1-vke/daemonset.yaml", "s3-network/agent.yaml", "s4-infiniband/agent.yaml")
OF_KUBELETS = ("kubernetes.io/os", "kubernetes.io/arch")
S3_LABEL = "feature.node.kubernetes.io/pci-15b3.present"
QUOTA = "gke-quota.yaml"  # applied, not patched with
NAMESPACES = {
    "s1-vke": "kube-rdma-vke",
    "s3-network": "mlnx-network-operator",
    "s4-infiniband": "kube-rdma-vf",
}
DISTRIBUTIONS = ("gke", "k0s", "k3s", "microk8s", "openshift", "rke2")


@cache
def workloads(path):
    """The DaemonSets and Deployments of a file, for whoever only reads them."""
    documents = yaml.load_all(path.read_text(), yaml.CSafeLoader)
    runs = ("DaemonSet", "Deployment")  # a file of values has no kind
    return [one for one in documents if one.get("kind") in runs]


def ours():
    """Every container of ours in the examples, with a name for it."""
    for path in sorted((ROOT / "examples").glob("*/*.yaml")):
        for one in workloads(path):
            for container in one["spec"]["template"]["spec"]["containers"]:
                if container["image"] == IMAGE and path.name != SEED:
                    yield pytest.param(container, id=f"{path.parent.name}/{path.name}")


def merged(items, changes, key):
    """A list of a pod after a patch, as Kubernetes merges it by this key."""
    gone = {change[key] for change in changes if change.get("$patch") == "delete"}
    found = {item[key]: item for item in items if item[key] not in gone}
    for change in changes:
        if change[key] not in gone:
            found[change[key]] = found.get(change[key], {}) | change
    return list(found.values())


def patched(name, distribution):
    """An agent's container and the paths of its volumes, on a distribution (None: as it is)."""
    (workload,) = workloads(ROOT / "examples" / name)
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounts, volumes = container["volumeMounts"], spec["volumes"]
    if distribution:
        patch = yaml.load(
            (ROOT / f"config/distributions/{distribution}.yaml").read_text(), yaml.CSafeLoader
        )
        pod = patch["spec"]["template"]["spec"]
        (change,) = pod["containers"]
        assert change["name"] == container["name"]
        mounts = merged(mounts, change["volumeMounts"], "mountPath")
        volumes = merged(volumes, pod["volumes"], "name")
    paths = {one["name"]: one["hostPath"]["path"] for one in volumes if "hostPath" in one}
    assert {one["name"] for one in mounts} <= {one["name"] for one in volumes}
    return {(one["name"], one["mountPath"]) for one in mounts}, paths


@pytest.mark.parametrize("container", list(ours()))
def test_no_probe_ends_a_container_that_is_late(container):
    """The watchdog inside does better (docs/decisions/0013): a starved agent is never ended."""
    assert "livenessProbe" not in container
    probe = container.get("startupProbe", {"periodSeconds": 1, "failureThreshold": 86400})
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 24 * 3600


@pytest.mark.parametrize("distribution", [None, *DISTRIBUTIONS])
@pytest.mark.parametrize("name", WITH_NETWORKS)
def test_folders_are_mounted_where_they_are_looked_for(name, distribution):
    """CNI below /host at the path of the host, the socket's folder at its own; nothing is lost."""
    mounts, paths = patched(name, distribution)
    for volume in ("cni-conf", "cni-bin"):
        assert [path for one, path in mounts if one == volume] == [f"/host{paths[volume]}"]
    assert ("runtime", paths["runtime"]) in mounts
    assert Path(paths["runtime"]) in {socket.parent for socket in SOCKETS}
    assert {one for one, _ in mounts} == {one for one, _ in patched(name, None)[0]}


@pytest.mark.parametrize("distribution", [None, "rke2", "gke", "openshift"])
def test_mounts_alone_say_where_to_look(tmp_path, distribution):
    """For a runtime that does not; of k3s only the runtime knows."""
    mounts, paths = patched("s3-network/agent.yaml", distribution)
    for _, path in mounts:
        if path.startswith("/host/"):
            (tmp_path / path.removeprefix("/host/")).mkdir(parents=True, exist_ok=True)
    found = find(tmp_path)
    expected = (PurePosixPath(paths["cni-conf"]), PurePosixPath(paths["cni-bin"]))
    assert (found.conf, found.binaries) == expected


def test_each_patch_is_in_the_documents_table():
    """And each of the table's is there."""
    page = (ROOT / "docs/agent.md").read_text()
    files = {path.name for path in (ROOT / "config/distributions").iterdir()}
    assert files == {f"{name}.yaml" for name in DISTRIBUTIONS} | {QUOTA}
    assert all(f"(../config/distributions/{name})" in page for name in files)


def test_anothers_resource_definition_is_never_changed():
    """`apply` would; and no program of ours may."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "README.md"]
    lines = [line for page in pages for line in page.read_text().splitlines()]
    named = [line for line in lines if "config/foreign" in line]
    assert named
    assert not [line for line in named if "create -f config/foreign" not in line]
    manifests = [path.read_text() for path in (ROOT / "examples").glob("*/*.yaml")]
    assert not [text for text in manifests if "customresourcedefinitions" in text]


def documents(folder, *names):
    """The documents of an example's files."""
    for name in names:
        yield from yaml.load_all((ROOT / "examples" / folder / name).read_text(), yaml.CSafeLoader)


def installed(folder):
    """What an example with networks installs: the agent with its rights, the controller."""
    (agent,) = (Path(name).name for name in WITH_NETWORKS if name.startswith(folder))
    return list(documents(folder, agent, "controller.yaml"))


def daemonsets():
    """Every DaemonSet of ours in the examples, with a name for it."""
    for path in sorted((ROOT / "examples").glob("*/*.yaml")):
        for one in workloads(path):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            if one["kind"] == "DaemonSet" and container["image"] == IMAGE and path.name != SEED:
                yield pytest.param(one, id=f"{path.parent.name}/{path.name}")


@pytest.mark.parametrize("daemonset", list(daemonsets()))
def test_the_kubelet_asks_an_agent_whether_it_is_ready_where_it_answers(daemonset):
    """On the host's network, at an address that nobody else reaches."""
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    if "--role=node" in container["args"] and "--role=plugin" not in container["args"]:
        assert "readinessProbe" not in container, "it labels its node, and no pod waits for it"
        return
    (address,) = (word for word in container["args"] if word.startswith("--health-address="))
    for probe in ("startupProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert f"--health-address={asked['host']}:{asked['port']}" == address
        assert (asked["host"], asked["path"]) == ("127.0.0.1", "/readyz")


@pytest.mark.parametrize("folder", NAMESPACES)
def test_what_an_example_installs_is_its_own(folder):
    """Nothing of it has the name of something in another one, so one can be taken away alone."""
    shared = [
        (one["kind"], one["metadata"]["name"])
        for other in NAMESPACES
        if other != folder
        for one in installed(other)
        if "namespace" not in one["metadata"]
    ]
    namespace = NAMESPACES[folder]
    for one in installed(folder):
        place = one["metadata"].get("namespace")
        assert place in (None, namespace)
        assert place or (one["kind"], one["metadata"]["name"]) not in shared
        for subject in one.get("subjects", ()):
            assert subject["namespace"] == namespace
    assert {"kind": "Namespace", "name": namespace} in [
        {"kind": one["kind"], "name": one["metadata"]["name"]} for one in installed(folder)
    ]


def test_roles_and_their_bindings_agree():
    for folder in NAMESPACES:
        every = installed(folder)
        roles = {(one["kind"], one["metadata"]["name"]) for one in every if "rules" in one}
        bound = {
            (one["roleRef"]["kind"], one["roleRef"]["name"]) for one in every if "roleRef" in one
        }
        assert roles == bound


@pytest.mark.parametrize("folder", NAMESPACES)
def test_the_right_to_write_a_node_s_status_is_for_its_condition_alone(folder):
    """One verb of one subresource; the policy in config/admission narrows it down further."""
    rules = [rule for one in installed(folder) for rule in one.get("rules", ())]
    (rule,) = (rule for rule in rules if "nodes/status" in rule["resources"])
    assert rule == {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}


@pytest.mark.parametrize("daemonset", list(daemonsets()))
def test_who_writes_sysfs_is_not_confined_by_apparmor(daemonset):
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    writes = [
        one
        for one in container["volumeMounts"]
        if one["mountPath"] == "/sys" and not one.get("readOnly")
    ]
    profile = container["securityContext"].get("appArmorProfile")
    assert (profile == {"type": "Unconfined"}) is bool(writes)


@pytest.mark.parametrize("daemonset", list(daemonsets()))
def test_a_node_needs_a_label_only_where_the_seed_has_one(daemonset):
    """Beside system and architecture, which every kubelet writes; other labels take a node out.

    Seed S3's selector is what its document shows.
    """
    spec = daemonset["spec"]["template"]["spec"]
    seed_s3 = daemonset["metadata"]["name"] == "rdma-shared-dp-ds"
    assert spec.get("nodeSelector", {}).keys() == ({S3_LABEL} if seed_s3 else set())
    terms = spec.get("affinity", {}).get("nodeAffinity", {}).values()
    (expressions,) = [one["nodeSelectorTerms"] for one in terms] or [[]]
    assert all(
        expression["operator"] == "NotIn" or expression["key"] in OF_KUBELETS
        for term in expressions
        for expression in term["matchExpressions"]
    )


def test_seed_s0_s_job_is_its_document_s_but_for_the_image():
    (job,) = documents("s0-ack", "job.yaml")
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "hps-benchmark")
    spec = job["spec"]["template"]["spec"]
    (container,) = spec.pop("containers")
    assert job["spec"]["parallelism"] == 1
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    assert spec == {
        "restartPolicy": "Never",
        "volumes": [shm],
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
    }
    del container["image"]
    assert container == {
        "name": "hps-benchmark",
        "command": ["sh", "-c", "python /workspace/wdl_8gpu_outbrain.py\n"],
        "resources": {"limits": {"nvidia.com/gpu": 8, "rdma/hca": 1}},
        "workingDir": "/root",
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }


def test_the_lab_s_image_has_what_seed_s0_s_command_runs():
    (job,) = documents("s0-ack", "job.yaml")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == VERBS
    program, script = container["command"][-1].split()
    assert {"training": script[1:], "python": f"usr/local/bin/{program}"} == TRAINING
    assert all((PACKAGE / "training_image" / name).is_file() for name in TRAINING)


def test_seed_s1_s_installation_brings_the_addresses():
    """A user of VKE writes a block {"cniConf": {"name": "rdma"}} and nothing else."""
    (pool,) = (one for one in installed("s1-vke") if one["kind"] == "IPPool")
    assert pool["metadata"]["name"] == "rdma"
    (deployment,) = documents("s1-vke", "deployment.yaml")
    blocks = deployment["spec"]["template"]["metadata"]["annotations"]
    assert json.loads(blocks["k8s.volcengine.com/pod-networks"]) == [{"cniConf": {"name": "rdma"}}]


def test_seed_s3_s_network_is_understood_as_its_authors_wrote_it():
    """With all that whereabouts alone needs, which is told and not refused."""
    (document,) = documents("s3-network", "rdma-net-ipam.yaml")
    meta = document["metadata"]
    resource = meta["annotations"]["k8s.v1.cni.cncf.io/resourceName"]
    network = load(
        meta["namespace"], meta["name"], document["spec"]["config"].encode(), resource
    ).network
    assert (network.kind, network.device, network.mtu) == (NetworkKind.MACVLAN, "ens2f0", 9000)
    assert network.resource == "rdma/hca_shared_devices_a"


@pytest.mark.parametrize("gpu", [False, True])
def test_seed_s3_s_pods_have_their_own_names(gpu):
    kind = "gpu-" if gpu else ""
    pods = list(documents("s3-network", *(f"rdma-{kind}test-pod{n}.yml" for n in (1, 2))))
    assert [pod["metadata"]["name"] for pod in pods] == [f"rdma-{kind}test-pod-{n}" for n in (1, 2)]
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        limits = {"rdma/hca_shared_devices_a": 1} | ({"nvidia.com/gpu": 1} if gpu else {})
        assert container["resources"] == {"limits": limits, "requests": limits}


def test_gke_s_quota_is_for_the_class_that_the_agents_have():
    (quota,) = yaml.load_all((ROOT / "config/distributions" / QUOTA).read_text(), yaml.CSafeLoader)
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    for folder in NAMESPACES:
        (agent,) = (one for one in installed(folder) if one["kind"] == "DaemonSet")
        assert agent["spec"]["template"]["spec"]["priorityClassName"] in scope["values"]


def rights(path):
    """Every resource of the core group with the verbs that the roles of a file allow on it."""
    for one in yaml.load_all((ROOT / "examples" / path).read_text(), yaml.CSafeLoader):
        for rule in one.get("rules", ()):
            if "" in rule["apiGroups"]:
                yield from (
                    (resource, verb) for resource in rule["resources"] for verb in rule["verbs"]
                )


@pytest.mark.parametrize("path", WITH_NETWORKS)
def test_no_agent_may_evict(path):
    """A node's token would end any pod of the cluster: admission sees no node in an eviction."""
    assert ("pods", "patch") in rights(path)
    assert not {right for right in rights(path) if right[0] == "pods/eviction"}
    assert ("pods", "delete") not in rights(path)
