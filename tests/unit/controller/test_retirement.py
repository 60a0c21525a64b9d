"""The agents' end on an API server: refused while pods need them, waited for else."""

import asyncio

import pytest

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SET, POD
from kube_rdma.attach.documents.network_status import OWN_ANNOTATION
from kube_rdma.controller import retirement
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.unit.agent.world import until

NAMESPACE, NAME = "kube-rdma-vke", "rdma-device-plugin"
LABELS = {"name": NAME}


class InstalledWorld:
    """A cluster with a DaemonSet and its pod on one node; a test ends the pod as a kubelet does."""

    def __init__(self):
        self.server = FakeServer([DAEMON_SET, POD])
        self.line = self.server.line()
        self.retirement = retirement.Retirement(Cluster(self.line), NAMESPACE, NAME)
        meta = {"name": NAME, "namespace": NAMESPACE}
        spec = {"selector": {"matchLabels": LABELS}}
        self.server.put(DAEMON_SET, {"metadata": meta, "spec": spec})
        self.pod("agent", NAMESPACE, labels=LABELS)

    def pod(self, name, namespace, **meta):
        document = {"metadata": {"name": name, "namespace": namespace, **meta}}
        self.server.put(POD, {**document, "spec": {}, "status": {"phase": "Running"}})

    @property
    def daemon_sets(self):
        return self.server.documents("daemonsets")


@pytest.fixture
def world():
    return InstalledWorld()


async def test_agents_end_and_are_waited_for(world):
    world.pod("bystander", NAMESPACE, labels={"name": "controller"})
    task = asyncio.create_task(world.retirement.run())
    await until(lambda: world.line.watching == 1)
    assert not world.daemon_sets
    assert not task.done()
    world.server.remove(POD, "agent", NAMESPACE)
    await task


async def test_a_pod_with_networks_keeps_them_all(world):
    world.pod("training", "team", annotations={OWN_ANNOTATION: "[]"})
    with pytest.raises(Refused, match="team/training"):
        await world.retirement.run()
    assert world.daemon_sets


async def test_who_insists_ends_them_all_the_same(world):
    world.pod("training", "team", annotations={OWN_ANNOTATION: "[]"})
    world.server.remove(POD, "agent", NAMESPACE)
    await world.retirement.run(force=True)
    assert not world.daemon_sets


async def test_it_may_be_repeated(world):
    """Also in a cluster where pods have networks still: no agent is ended by it any more."""
    world.pod("training", "team", annotations={OWN_ANNOTATION: "[]"})
    world.server.remove(DAEMON_SET, NAME, NAMESPACE)
    await world.retirement.run()


def count(world, desired, ready, *, behind=0):
    """The controller of DaemonSets counts, of the current version or of one before it."""
    (document,) = world.daemon_sets
    counts = {
        "desiredNumberScheduled": desired,
        "numberAvailable": ready,
        "observedGeneration": document["metadata"].get("generation", 0) - behind,
    }
    world.server.put(DAEMON_SET, {**document, "status": counts})


async def test_every_node_is_waited_for(world):
    """Counts of before the controller has seen it are none."""
    count(world, 0, 0, behind=1)
    task = asyncio.create_task(retirement.available(Cluster(world.line), NAMESPACE, NAME))
    await until(lambda: world.line.watching == 1)
    count(world, 2, 1)
    await until(lambda: world.line.watching == 1)
    assert not task.done()
    count(world, 2, 2)
    await task


async def test_no_node_is_soon_left(world):
    count(world, 0, 0)
    await retirement.available(Cluster(world.line), NAMESPACE, NAME)


async def test_an_operator_stays_while_its_drivers_run(world):
    cluster = Cluster(world.line)
    await retirement.retire_drivers(cluster, NAMESPACE)
    labels = {"kube-rdma.io/component": "state-OFED"}
    meta = {"name": "driver", "namespace": NAMESPACE, "labels": labels}
    world.server.put(DAEMON_SET, {"metadata": meta, "spec": {}})
    with pytest.raises(Refused, match="run by DaemonSet driver, and would all be unloaded"):
        await retirement.retire_drivers(cluster, NAMESPACE)
    pod = {"metadata": {**meta, "name": "p"}, "spec": {"nodeName": "node-1"}}
    world.server.put(POD, pod)
    with pytest.raises(Refused, match=r"run on nodes node-1, .*Delete the policy"):
        await retirement.retire_drivers(cluster, NAMESPACE)


def webhook(name="kube-rdma-admission", namespace=NAMESPACE):
    service = {"name": name, "namespace": namespace, "path": "/validate"}
    return {"name": "pods.kube-rdma.io", "clientConfig": {"service": service, "caBundle": "YQ=="}}


@pytest.mark.parametrize("fullname", ["", "rdma-a"])
async def test_what_asks_a_former_webhook_is_deleted(fullname):
    """`kubectl apply` of a later version leaves it, and each pod would wait for nobody's answer."""
    server = FakeServer(retirement.WEBHOOK_CONFIGURATIONS)
    dot, dash = (f"{fullname}.", fullname) if fullname else ("", "kube-rdma")
    name, asked = f"{dot}pods.kube-rdma.io", webhook(f"{dash}-admission")
    for kind in retirement.WEBHOOK_CONFIGURATIONS:
        for each in (name, "others"):
            server.put(kind, {"metadata": {"name": each}, "webhooks": [asked, asked]})
    for _ in range(2):  # nothing is left to do at the next start
        await retirement.retire_webhook(Cluster(server.line()), NAMESPACE, fullname)
        for kind in retirement.WEBHOOK_CONFIGURATIONS:
            left = server.documents(kind.plural)
            assert [each["metadata"]["name"] for each in left] == ["others"]


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [webhook(namespace="elsewhere")],
        [webhook(), webhook("another")],
        [{"name": "a", "clientConfig": {"url": "https://a"}}],
    ],
)
async def test_what_asks_somebody_else_stays(entries):
    """Another installation's configurations have the same name."""
    server = FakeServer(retirement.WEBHOOK_CONFIGURATIONS)
    for kind in retirement.WEBHOOK_CONFIGURATIONS:
        server.put(kind, {"metadata": {"name": "pods.kube-rdma.io"}, "webhooks": entries})
    await retirement.retire_webhook(Cluster(server.line()), NAMESPACE)
    assert all(server.documents(kind.plural) for kind in retirement.WEBHOOK_CONFIGURATIONS)


async def test_a_role_without_the_right_ends_no_part_of_the_controller():
    """An image may be newer than the chart's roles."""
    server = FakeServer(retirement.WEBHOOK_CONFIGURATIONS)
    for kind in retirement.WEBHOOK_CONFIGURATIONS:
        server.forbidden.add(("get", kind.plural))
    with recorded() as log:
        await retirement.retire_webhook(Cluster(server.line()), NAMESPACE)
    assert len(log.of("former webhook not looked for")) == 2
