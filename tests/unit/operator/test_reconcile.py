"""The operator on an API server: order, drift, faults of policies, and silence when all is well."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.events import Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import CONFIG_MAP, DAEMON_SET, FULL_POD
from kube_rdma.install.rules.release import MANAGER
from kube_rdma.operator import reconcile
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY, NIC_CLUSTER_POLICY_OF_CLUSTER
from kube_rdma.operator.documents import nic_cluster_policy
from kube_rdma.operator.reconcile import Operator, OperatorPlace, OperatorTiming
from kube_rdma.operator.rules.daemon_sets import COMPONENT_LABEL, MANAGED_LABEL
from kube_rdma_testing.cluster.daemon_sets import FakeDaemonSets
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.recording import recorded
from tests.unit.agent.world import until
from tests.unit.operator.documents.test_nic_cluster_policy import CONFIG, LIST, SEED, SRIOV

NAMESPACE = "mlnx-network-operator"
FEATURE = "feature.node.kubernetes.io"
DRIVER = "ofed-driver-amd64-ubuntu18.04-kver4.15.0-109-generic-ds"
PEER = "nv-peer-mem-driver-amd64-ubuntu18.04-ds"
PLUGIN = "rdma-shared-dp-ds"
LABELS = {
    "kubernetes.io/arch": "amd64",
    f"{FEATURE}/pci-15b3.present": "true",
    f"{FEATURE}/pci-10de.present": "true",
    f"{FEATURE}/kernel-version.full": "4.15.0-109-generic",
    f"{FEATURE}/system-os_release.ID": "ubuntu",
    f"{FEATURE}/system-os_release.VERSION_ID": "18.04",
}
NOW = datetime(2026, 11, 22, tzinfo=UTC)
PARALLEL = {"upgradePolicy": {"maxParallelUpgrades": 0}}
QUICK = OperatorTiming(gather=0.0, every=5.0, upgrade=0.05, pause=lambda _: 0.01)


class ClusterWorld:
    """A cluster with a node and the controller of DaemonSets, which goes on in `until`."""

    def __init__(self, pace=None, *, cluster_wide=False):
        self.pace, self.place = pace, OperatorPlace(NAMESPACE, cluster_wide)
        self.kind = NIC_CLUSTER_POLICY_OF_CLUSTER if cluster_wide else NIC_CLUSTER_POLICY
        self.server = FakeServer([self.kind, DAEMON_SET, CONFIG_MAP, NODE_REPORT])
        self.line = self.server.line()
        self.controller = FakeDaemonSets(self.server, FULL_POD, DAEMON_SET)
        self.node("ubuntu00")

    @asynccontextmanager
    async def operator(self):
        """The operator runs."""
        cluster = Cluster(self.line, self.pace) if self.pace else Cluster(self.line)
        events = Events(cluster, "operator")
        async with asyncio.TaskGroup() as tasks:
            operator = Operator(cluster, self.place, events, QUICK)
            running = [tasks.create_task(events.run()), tasks.create_task(operator.run())]
            await until(lambda: self.line.watching == 5)
            yield operator
            for task in running:
                task.cancel()

    def node(self, name, **changes):
        labels = LABELS | changes
        here = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}]
        meta, status = {"name": name, "labels": labels}, {"conditions": here}
        self.server.put(NODE, {"metadata": meta, "spec": {}, "status": status})

    def policy(self, spec, name="example-nicclusterpolicy"):
        """Somebody writes a policy."""
        old = self.stored("nicclusterpolicies").get(name, {})
        meta = {"name": name, **({"namespace": NAMESPACE} if self.kind.namespaced else {})}
        status = {"status": old["status"]} if "status" in old else {}
        self.server.put(self.kind, {"metadata": meta, "spec": spec, **status})

    def stored(self, plural):
        return {one["metadata"]["name"]: one for one in self.server.documents(plural)}

    def status(self, name="example-nicclusterpolicy"):
        return self.stored("nicclusterpolicies")[name].get("status", {})

    def states(self):
        return {one["name"]: one["state"] for one in self.status().get("appliedStates", ())}

    async def until(self, condition):
        """Wait for a condition while pods come and go."""
        await until(lambda: self.controller.step() and condition())

    async def looks(self, operator):
        """Let the operator see what has changed, and look a few times more."""
        for _ in range(100):
            await asyncio.sleep(0)
        for _ in range(4):
            await operator.look(NOW)
            self.controller.step()

    async def all_ready(self):
        """Wait for the driver, then for what waits for it."""
        await self.until(lambda: self.status().get("state") == "ready")

    @property
    def writes(self):
        return [str(r) for r in self.line.requests if r.verb not in ("get", "list", "watch")]

    def relabel(self, node, **changes):
        """Somebody changes labels of a node that is there; None takes one away."""
        document = self.stored("nodes")[node]
        labels = {**document["metadata"]["labels"], **changes}
        kept = {key: value for key, value in labels.items() if value is not None}
        meta = {**document["metadata"], "labels": kept}
        self.server.put(NODE, {**document, "metadata": meta})

    def condition(self, kind):
        return next(c for c in self.status()["conditions"] if c["type"] == kind)


@pytest.fixture
def world():
    return ClusterWorld()


async def test_on_each_node_the_driver_comes_first_and_the_others_when_it_is_ready(world):
    world.node("ubuntu01")
    world.controller.fails = {"ubuntu00"}
    world.policy(SEED | {"ofedDriver": SEED["ofedDriver"] | PARALLEL})
    async with world.operator():
        await world.until(lambda: "ubuntu01" in world.controller.pods(PEER))
        assert set(world.controller.pods(PLUGIN)) == {"ubuntu01"}
        assert set(world.controller.pods(DRIVER)) == {"ubuntu00", "ubuntu01"}
        await world.until(lambda: world.states().get("state-RDMA-device-plugin") == "notReady")
        await world.until(lambda: "1 of 2 nodes wait for their driver" in world.status()["reason"])
        world.controller.fails = set()
        await world.all_ready()
    parts = ("state-OFED", "state-RDMA-device-plugin", "state-NV-Peer")
    assert world.states() == {
        **dict.fromkeys(parts, "ready"),
        "state-SRIOV-device-plugin": "ignore",
    }
    assert world.status()["reason"] == ""
    assert "Stalled" not in str(world.status())
    assert world.stored("configmaps")["rdma-devices"]["data"] == {"config.json": CONFIG}
    images = {
        name: document["spec"]["template"]["spec"]["containers"][0]["image"]
        for name, document in world.stored("daemonsets").items()
    }
    assert images == {
        DRIVER: "mellanox/ofed-driver-5.0-2.1.8.0:amd64-ubuntu18.04-kver4.15.0-109-generic",
        PEER: "mellanox/nv-peer-mem-driver-1.0-9:amd64-ubuntu18.04",
        PLUGIN: "mellanox/k8s-rdma-shared-dev-plugin:v1.0.0",
    }


async def test_nothing_is_written_while_nothing_changes(world):
    """Neither by this operator nor by the next one."""
    world.policy(SEED)
    async with world.operator():
        await world.all_ready()
    for _ in range(2):
        before = [one for one in world.writes if "events" not in one]
        async with world.operator() as operator:
            world.node("another", **{f"{FEATURE}/pci-15b3.present": "false"})
            world.policy(SEED)
            assert await operator.look(NOW)
        assert [one for one in world.writes if "events" not in one] == before


async def test_nothing_is_looked_at_while_nothing_changes(world):
    cluster = Cluster(world.line)
    operator = Operator(cluster, world.place, Events(cluster, "operator"), QUICK)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await operator._sleep(0)


async def test_what_somebody_changed_by_hand_is_put_right(world):
    world.policy({"devicePlugin": SEED["devicePlugin"]})
    async with world.operator():
        await until(lambda: PLUGIN in world.stored("daemonsets"))
        document = json.loads(json.dumps(world.stored("daemonsets")[PLUGIN]))
        pod = document["spec"]["template"]["spec"]
        pod["containers"][0]["image"] = "evil"
        pod["priorityClassName"] = "low"
        world.server.put(DAEMON_SET, document)

        def image():
            spec = world.stored("daemonsets")[PLUGIN]["spec"]["template"]["spec"]
            return spec["containers"][0]["image"], spec["priorityClassName"]

        usual = ("mellanox/k8s-rdma-shared-dev-plugin:v1.0.0", "system-node-critical")
        await until(lambda: image() == usual)


async def test_objects_of_a_section_that_is_removed_go_away(world):
    world.policy(SEED)
    async with world.operator():
        await world.all_ready()
        world.policy({"ofedDriver": SEED["ofedDriver"]})
        await world.until(lambda: set(world.stored("daemonsets")) == {DRIVER})
        await world.until(lambda: not world.stored("configmaps"))
        await world.until(lambda: world.states()["state-RDMA-device-plugin"] == "ignore")
        await world.until(lambda: world.status()["state"] == "ready")


async def test_each_kernel_gets_a_driver_of_its_own_and_a_kernel_that_is_gone_loses_it(world):
    world.policy({"ofedDriver": SEED["ofedDriver"]})
    second = "ofed-driver-amd64-ubuntu18.04-kver5.4.0-ds"
    async with world.operator():
        await world.until(lambda: world.controller.pods(DRIVER))
        world.node("newer", **{f"{FEATURE}/kernel-version.full": "5.4.0"})
        await world.until(lambda: world.controller.pods(second))
        world.server.remove(NODE, "newer")
        await world.until(lambda: set(world.stored("daemonsets")) == {DRIVER})


async def test_a_cluster_without_cards_says_so(world):
    world.node("ubuntu00", **{f"{FEATURE}/pci-15b3.present": "false"})
    world.policy({"devicePlugin": SEED["devicePlugin"]})
    async with world.operator():
        await until(lambda: "No node has the label" in world.status().get("reason", ""))
    condition = world.condition("RDMASharedDevicePluginReady")
    assert (condition["status"], condition["reason"]) == ("False", "NoMatchingNodes")
    assert condition["message"] == f"No node has the label {FEATURE}/pci-15b3.present=true"


async def test_a_broken_configuration_is_told_and_the_running_one_stays(world):
    world.policy({"devicePlugin": SEED["devicePlugin"]})
    async with world.operator():
        await until(lambda: PLUGIN in world.stored("daemonsets"))
        broken = SEED["devicePlugin"] | {"config": CONFIG.replace("1000", "0")}
        world.policy({"devicePlugin": broken})
        await until(lambda: world.status().get("state") == "error")
        assert "rdmaHcaMax" in world.status()["reason"]
        assert world.condition("Stalled")["reason"] == "PolicyRefused"
        assert world.stored("configmaps")["rdma-devices"]["data"] == {"config.json": CONFIG}
        events = world.server.documents
        await until(lambda: "NotReady" in {one["reason"] for one in events("events")})


async def test_a_policy_whose_handling_raises_says_so_and_another_has_its_status(
    world, monkeypatch
):
    """The operator as a whole failed, again and again."""
    known = reconcile.components

    def components(policy, *rest):
        if policy.name == "bad":
            raise AttributeError("x")
        return known(policy, *rest)

    monkeypatch.setattr(reconcile, "components", components)
    world.policy(SEED, "bad")
    world.policy(SEED, "later")
    with recorded() as log:
        async with world.operator():
            await world.until(lambda: world.status("bad") and world.status("later"))
    assert (
        "cannot handle this NicClusterPolicy (AttributeError: x)" in world.status("bad")["reason"]
    )
    assert "bad is older" in world.status("later")["reason"]
    assert len(log.of("object failed")) == 1
    assert not log.of("part of the program failed")


async def test_a_policy_whose_reader_raises_says_so(world, monkeypatch):
    def load(data, _where):
        raise RecursionError

    monkeypatch.setattr(nic_cluster_policy, "load", load)
    world.policy(SEED)
    with recorded():
        async with world.operator():
            await world.until(lambda: "RecursionError" in world.status().get("reason", ""))


async def test_a_daemon_set_that_names_no_pods_ends_no_look(world):
    """It has the labels of the operator's drivers, as anybody may write who writes DaemonSets."""
    labels = {MANAGED_LABEL: MANAGER, COMPONENT_LABEL: "state-OFED"}
    meta = {"name": "odd", "namespace": NAMESPACE, "labels": labels}
    spec = {"template": {"metadata": {}, "spec": {}}}
    world.server.put(DAEMON_SET, {"metadata": meta, "spec": spec})
    world.policy(SEED)
    with recorded() as log:
        async with world.operator():
            await world.all_ready()
    assert {line["kind"] for line in log.of("object failed")} == {"DaemonSet"}
    assert not log.of("part of the program failed")


async def test_of_two_policies_the_older_one_counts(world):
    """The server's clock gives both the same second here; then the name decides."""
    world.policy({"devicePlugin": SEED["devicePlugin"]}, "a")
    world.policy({"ofedDriver": SEED["ofedDriver"]}, "b")
    async with world.operator():
        await until(lambda: world.status("b").get("state") == "error")
        assert world.status("b")["reason"] == ("Policy a is older and counts; delete one of them")
        assert "Stalled" in str(world.status("b"))
        assert set(world.stored("daemonsets")) <= {PLUGIN}
        world.server.remove(NIC_CLUSTER_POLICY, "a", NAMESPACE)
        await world.until(lambda: DRIVER in world.stored("daemonsets"))


@pytest.mark.parametrize("labels", [{}, {"kube-rdma.io/component": "state-RDMA-device-plugin"}])
async def test_an_object_of_somebody_else_is_not_taken(world, labels):
    meta = {"name": PLUGIN, "namespace": NAMESPACE, "labels": labels}
    foreign = {"metadata": meta, "spec": {"template": {}}}
    world.server.put(DAEMON_SET, foreign)
    world.policy({"devicePlugin": SEED["devicePlugin"]})
    async with world.operator():
        await until(lambda: world.status().get("state") == "error")
        assert "belongs to another owner" in world.status()["reason"]
    assert world.stored("daemonsets")[PLUGIN]["spec"] == {"template": {}}


async def test_an_api_server_that_is_away_is_waited_for(world):
    async with world.operator():
        world.line.cut()
        world.policy({"devicePlugin": SEED["devicePlugin"]})
        world.line.mend()
        await until(lambda: PLUGIN in world.stored("daemonsets"))


async def test_a_refused_write_is_told_and_tried_again(world):
    world.server.forbidden.add(("patch", "daemonsets"))
    world.policy({"devicePlugin": SEED["devicePlugin"]})
    async with world.operator() as operator:
        await until(lambda: world.status().get("state") == "error")
        assert not await operator.look(NOW)
        world.server.forbidden.clear()
        await until(lambda: PLUGIN in world.stored("daemonsets"))


FUNCTIONS, FUNCTIONS_MAP = "network-operator-sriov-device-plugin", "network-operator-sriovdp-config"


async def test_a_policy_of_the_cluster_deploys_into_the_operator_s_namespace():
    """With the definition of 0.2.0 and all later releases."""
    world = ClusterWorld(cluster_wide=True)
    world.policy(SEED)
    async with world.operator():
        await world.all_ready()
    document = world.stored("daemonsets")[DRIVER]
    assert document["metadata"]["namespace"] == NAMESPACE
    (owner,) = world.stored("daemonsets")[PLUGIN]["metadata"]["ownerReferences"]
    assert owner["uid"] == world.stored("nicclusterpolicies")[owner["name"]]["metadata"]["uid"]


@pytest.mark.parametrize(
    ("lacking", "messages"),
    [
        (("observedGeneration",), True),
        (("observedGeneration", "conditions"), True),
        (("observedGeneration", "conditions"), False),
    ],
    ids=["26.7", "24.7", "before"],
)
async def test_a_status_of_which_the_server_drops_fields_is_written_once(lacking, messages):
    """NVIDIA's definitions before 26.7 have no conditions, those before 24.7 no messages."""
    world = ClusterWorld(cluster_wide=True)
    world.controller.fails = {"ubuntu00"}
    world.policy({"devicePlugin": SEED["devicePlugin"]})
    async with world.operator() as operator:
        await world.until(lambda: "0 of 1 pods" in world.status().get("reason", ""))
        await world.looks(operator)
        stored = json.loads(json.dumps(world.stored("nicclusterpolicies")))
        (document,) = stored.values()
        for field in lacking:
            del document["status"][field]
        for part in document["status"]["appliedStates"] if not messages else ():
            part.pop("message", None)
        world.server.put(world.kind, document)
        before = list(world.writes)
        await world.looks(operator)
    assert world.writes == before


async def test_both_device_plugins_come_behind_the_driver(world):
    world.policy({**SEED, "sriovDevicePlugin": SRIOV})
    async with world.operator():
        await world.all_ready()
        assert set(world.states().values()) == {"ready"}
        assert world.controller.pods(FUNCTIONS).keys() == world.controller.pods(PLUGIN).keys()
        assert world.stored("configmaps")[FUNCTIONS_MAP]["data"] == {"config.json": LIST}
        assert world.condition("SRIOVDevicePluginReady")["status"] == "True"
        world.policy(SEED)
        await world.until(lambda: FUNCTIONS not in world.stored("daemonsets"))
        await world.until(lambda: FUNCTIONS_MAP not in world.stored("configmaps"))
        assert PLUGIN in world.stored("daemonsets")


async def test_a_config_map_of_the_administrator_stays_as_it_is(world):
    plugin = {part: SRIOV[part] for part in ("image", "repository", "version")}
    meta = {"name": FUNCTIONS_MAP, "namespace": NAMESPACE}
    world.server.put(CONFIG_MAP, {"metadata": meta, "data": {"config.json": LIST}})
    world.policy({"sriovDevicePlugin": plugin})
    async with world.operator():
        await world.all_ready()
    assert world.stored("configmaps")[FUNCTIONS_MAP]["data"] == {"config.json": LIST}


@pytest.mark.parametrize("word", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
async def test_an_image_that_is_not_there_is_named_in_the_reason(world, word):
    world.controller.fails = {"ubuntu00"}
    world.controller.unpulled = {"ubuntu00": word}
    world.policy({"ofedDriver": SEED["ofedDriver"]})
    async with world.operator():
        await world.until(lambda: "cannot pull" in world.status().get("reason", ""))
        reason = world.status()["reason"]
        image = "mellanox/ofed-driver-5.0-2.1.8.0:amd64-ubuntu18.04-kver4.15.0-109-generic"
        assert f"node ubuntu00 cannot pull {image} (" in reason
        assert word in reason
        assert f"kubectl -n {NAMESPACE} describe pod {DRIVER}-ubuntu00" in reason
        assert world.condition("OFEDDriverReady")["reason"] == "ImageNotPulled"
        world.controller.fails, world.controller.unpulled = set(), {}
        await world.all_ready()


async def test_the_sentence_stands_while_the_kubelet_changes_between_its_two_words(world):
    """Else each of its tries would be a write and an Event."""
    world.controller.fails = {"ubuntu00"}
    world.controller.unpulled = {"ubuntu00": "ErrImagePull"}
    world.policy({"devicePlugin": SEED["devicePlugin"]})
    async with world.operator() as operator:
        await world.until(lambda: "cannot pull" in world.status().get("reason", ""))
        await world.looks(operator)
        before = list(world.writes)
        world.controller.unpulled = {"ubuntu00": "ImagePullBackOff"}
        await world.looks(operator)
        assert world.writes == before


@pytest.mark.parametrize("spec", [{}, {"nvIpam": {"image": "x"}}])
async def test_a_policy_that_asks_for_nothing_here_is_not_called_ready(world, spec):
    world.policy(spec)
    async with world.operator():
        await world.until(lambda: world.status().get("state") == "ignore")
    assert world.status()["reason"] == "The policy asks for nothing that kube-rdma deploys"
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NothingToDeploy")
