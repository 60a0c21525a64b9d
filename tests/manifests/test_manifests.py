"""What every manifest of ours has, and what becomes of it on other distributions."""

from pathlib import Path, PurePosixPath

import pytest
import yaml

from kube_rdma.adapters.cni.conf.places import find
from kube_rdma.adapters.runtime.cri import SOCKETS

ROOT = Path(__file__).parents[2]
IMAGE = "kube-rdma.io/kube-rdma:dev"
SEED = "daemonset-seed.yaml"  # as its document has it
WITH_NETWORKS = ("s1-vke/daemonset.yaml", "s3-network/agent.yaml", "s4-infiniband/agent.yaml")
DISTRIBUTIONS = ("gke", "k3s", "openshift", "rke2")


def workloads(path):
    """The DaemonSets and Deployments of a file."""
    documents = yaml.safe_load_all(path.read_text())
    return [one for one in documents if one["kind"] in ("DaemonSet", "Deployment")]


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
        patch = yaml.safe_load((ROOT / f"config/distributions/{distribution}.yaml").read_text())
        pod = patch["spec"]["template"]["spec"]
        (change,) = pod["containers"]
        assert change["name"] == container["name"]
        mounts = merged(mounts, change["volumeMounts"], "mountPath")
        volumes = merged(volumes, pod["volumes"], "name")
    paths = {one["name"]: one["hostPath"]["path"] for one in volumes if "hostPath" in one}
    assert {one["name"] for one in mounts} <= {one["name"] for one in volumes}
    return {(one["name"], one["mountPath"]) for one in mounts}, paths


@pytest.mark.parametrize("container", list(ours()))
def test_none_has_a_liveness_probe(container):
    """The watchdog inside does better (docs/decisions/0013): a starved agent is never ended."""
    assert not {"livenessProbe", "startupProbe"} & container.keys()


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
    assert files == {f"{name}.yaml" for name in DISTRIBUTIONS}
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
