"""What a doctor in an agent's container sees of a pod: a fake /proc of the node, a fake runtime.

The agent may read the limits and rights of a process there, and neither its variables nor its
files: those are made unreadable here for root, too.
"""

import json
from contextlib import asynccontextmanager

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS, DEPLOYMENTS, POD
from kube_rdma.doctor.containers import is_open, with_made
from kube_rdma.doctor.evidence import DoctorPlaces, observe
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.doctor import ObservedContainer
from kube_rdma.model.kubernetes import MIRROR
from kube_rdma.model.late_binding import MadeContainer, PodName, PodSandbox
from kube_rdma.reports import cluster as objects
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.runtime.cri import FakeCriRuntime

KINDS = (*(DAEMON_SETS, DEPLOYMENTS, objects.EVENT, objects.BINDING), *(IP_POOL, DEFINITION, POD))
IDENTITY, UID = "ab" * 32, "1-2"
SPEC = {
    "process": {"env": ["NCCL_IB_GID_INDEX=3", "PASSWORD=hunter2", "UCX_TLS=rc", "BROKEN"]},
    "linux": {"devices": [{"path": "/dev/infiniband/uverbs0"}, {"path": "/dev/null"}, "?"]},
    "mounts": [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}],
}
CGROUP = f"0::/../kubepods-pod1_2.slice/cri-containerd-{IDENTITY}.scope\n"
LOCKED = "Max locked memory         65536                65536     bytes\n"


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def host(tmp_path):
    """The root of a node as an agent has it mounted: processes of a container, the first root's."""
    proc = tmp_path / "host/proc"
    (proc / "1").mkdir(parents=True)
    for pid in (7, 9):
        put(proc, f"{pid}/cgroup", CGROUP)
        put(proc, f"{pid}/limits", LOCKED)
        user = f"Uid:\t0\t{pid - 7}\t0\t0\n"
        put(proc, f"{pid}/status", f"{user}VmPin:\t{pid} kB\nCapEff:\t0000000000000000\n")
        (proc / f"{pid}/environ").mkdir()
        put(proc, f"{pid}/root", "")
    return tmp_path / "host"


def pod(added=(), resource="rdma/hca"):
    """A static pod, whose uid in the cgroups is not that of the API server."""
    container = {
        "name": "main",
        "resources": {"limits": {resource: "1"}},
        "securityContext": {"capabilities": {"add": list(added)}},
    }
    status = {"name": "main", "containerID": f"containerd://{IDENTITY}"}
    return {
        "metadata": {"name": "train", "namespace": "default", "annotations": {MIRROR: UID}},
        "spec": {"nodeName": "node-1", "containers": [container]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


@pytest.fixture
async def runtime(tmp_path_factory):
    """Its socket and the runtime; with the name of a test in its path no socket would fit."""
    path = tmp_path_factory.mktemp("r") / "s"
    async with FakeCriRuntime(path, "containerd", "v2.4.2", {}) as made:
        yield path, made


async def seen_from_an_agent(tmp_path, host, socket, document, config=None):
    """What the doctor in the agent's container comes to."""
    server = FakeServer(KINDS)
    server.put(POD, document)

    @asynccontextmanager
    async def opener():
        yield Cluster(server.line())

    places = DoctorPlaces(
        "node-1",
        host=host,
        kubelet_root=tmp_path / "kubelet",
        runtime_socket=socket,
        state=tmp_path / "state",
        config=config,
        pod=PodName("default", "train"),
    )
    return await observe(places, opener)


@pytest.mark.parametrize(("added", "code"), [((), "KR430"), (("IPC_LOCK",), "KR431")])
async def test_locked_memory_is_judged_from_an_agents_container(
    tmp_path, host, runtime, added, code
):
    socket, made = runtime
    made.make(IDENTITY, SPEC)
    seen = await seen_from_an_agent(tmp_path, host, socket, pod(added))
    (container,) = seen.pod.containers
    assert (container.user, container.locks, container.memlock) == (0, False, 65536)
    assert container.pinned == (7 + 9) * 1024
    assert seen.pod.queue_pairs is None
    assert container.nodes == ("/dev/infiniband/uverbs0",)
    assert container.variables == (("NCCL_IB_GID_INDEX", "3"), ("UCX_TLS", "rc"))
    assert code in {one.code for one in diagnose(seen).findings}


@pytest.mark.parametrize("configured", [True, False])
async def test_a_pod_with_a_share_of_the_nodes_pool_is_judged_whatever_its_name(
    tmp_path, host, runtime, configured
):
    """Preset efa has none of the usual names."""
    resource = "vpc.amazonaws.com/efa"
    kind = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy", "metadata": {"name": "a"}}
    policy = {**kind, "spec": {"pools": [{"resource": resource, "mode": "exclusive"}]}}
    config = tmp_path / "policy.json"
    config.write_text(json.dumps(policy))
    document = pod(["IPC_LOCK"], resource)
    document["spec"]["containers"][0]["securityContext"]["runAsUser"] = 1000
    place = config if configured else None
    seen = await seen_from_an_agent(tmp_path, host, runtime[0], document, place)
    assert [one.code for one in seen.pod.findings] == ["inert-lock"] * configured


async def test_without_the_runtimes_word_limits_are_judged_all_the_same(tmp_path, host, runtime):
    socket, _ = runtime
    seen = await seen_from_an_agent(tmp_path, host, socket, pod())
    (container,) = seen.pod.containers
    assert (container.memlock, container.nodes, container.variables) == (65536, None, None)
    assert any(IDENTITY in one.why for one in seen.not_seen if one.part == "pod.containers")
    diagnosis = diagnose(seen)
    assert "KR430" in {one.code for one in diagnosis.findings}
    assert {"KR415", "KR420", "KR421"} <= {one.code for one in diagnosis.unseen}


async def test_without_the_nodes_processes_the_runtime_tells_what_was_made(tmp_path, host, runtime):
    """An agent without the node's /proc: variables and devices are known, the limit is not."""
    socket, made = runtime
    made.make(IDENTITY, SPEC)
    seen = await seen_from_an_agent(tmp_path, tmp_path / "none", socket, pod())
    (container,) = seen.pod.containers
    assert (container.memlock, container.nodes) == (None, ("/dev/infiniband/uverbs0",))
    assert dict(container.variables)["UCX_TLS"] == "rc"
    assert {"KR430", "KR431"} <= {one.code for one in diagnose(seen).unseen}


async def test_a_pod_without_networks_has_its_namespace_by_the_runtime(tmp_path, host, runtime):
    """No process may be entered and no journal knows it: the sandbox has the path."""
    sandbox = PodSandbox("c1", PodName("default", "train"), UID, ready=True)
    socket, made = runtime
    made.make(IDENTITY, SPEC)
    made.run(sandbox, str(tmp_path / "gone"))
    seen = await seen_from_an_agent(tmp_path, host, socket, pod())
    whys = [one.why for one in seen.not_seen if one.part == "pod.links"]
    assert len(whys) == 1
    assert str(tmp_path / "gone") in whys[0]
    assert is_open(tmp_path), "what is there may be entered"


@pytest.mark.parametrize(
    ("mounts", "nodes"),
    [
        ((), ("/dev/infiniband/uverbs0",)),
        ((("/data", "/srv"),), ("/dev/infiniband/uverbs0",)),
        ((("/dev/infiniband", "/dev/infiniband"),), ("/dev/infiniband/uverbs7",)),
        ((("/dev", "/dev"),), ("/dev/infiniband/uverbs7",)),
        ((("/dev/infiniband", "/dev/empty"),), ()),
        ((("/dev/infiniband", "/var/lib/kubelet/pods/1-2/volumes/x"),), None),
        (
            (("/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm"),),
            ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"),
        ),
    ],
)
def test_a_volume_over_the_devices_is_what_the_container_has(tmp_path, mounts, nodes):
    (tmp_path / "infiniband").mkdir()
    (tmp_path / "infiniband/uverbs7").touch()
    made = {"main": MadeContainer((), ("/dev/infiniband/uverbs0", "/dev/null"), mounts)}
    (container,) = with_made([ObservedContainer("main")], made, tmp_path)
    assert container.nodes == nodes


def test_what_a_process_showed_counts_more_than_what_it_was_made_with(tmp_path):
    seen = ObservedContainer("main", nodes=(), variables=(("UCX_TLS", "tcp"),))
    made = {"main": MadeContainer((("UCX_TLS", "rc"),), ("/dev/infiniband/uverbs0",))}
    assert with_made([seen], made, tmp_path) == (seen,)
