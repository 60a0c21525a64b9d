"""The operator exchanges drivers of an older image: when, in which order, and what it says."""

import pytest

from kube_rdma.adapters.cluster.driver_objects import USING_POD
from kube_rdma.adapters.cluster.nodes import NODE
from kube_rdma.adapters.cluster.report_objects import NODE_REPORT
from kube_rdma.programs.operator.upgrades import CLOSED_MARK
from tests.unit.api.test_nic_cluster_policy import SEED
from tests.unit.programs.agent.world import until
from tests.unit.programs.operator.test_reconcile import DRIVER, LABELS, NAMESPACE, ClusterWorld

FIRST_NODE, SECOND_NODE = "ubuntu00", "ubuntu01"
RESOURCE = "rdma/hca_shared_devices_a"


class UpgradeWorld(ClusterWorld):
    """Two nodes with a driver each, and the policy's next version."""

    def __init__(self):
        super().__init__()
        self.node(SECOND_NODE)

    def spec(self, version, **upgrade):
        section = {**SEED["ofedDriver"], "version": version}
        return {"ofedDriver": section | ({"upgradePolicy": upgrade} if upgrade else {})}

    def image(self):
        template = self.stored("daemonsets")[DRIVER]["spec"]["template"]
        return template["spec"]["containers"][0]["image"], template["metadata"]["labels"]

    def start_driver(self, node, *, ready=True):
        """The controller of DaemonSets makes a pod, whose driver comes up or does not."""
        image, labels = self.image()
        state = "True" if ready else "False"
        meta = {"name": f"driver-{node}", "namespace": NAMESPACE, "labels": labels}
        spec = {"nodeName": node, "containers": [{"name": "c", "image": image}]}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": state}]}
        self.server.put(USING_POD, {"metadata": meta, "spec": spec, "status": status})

    def start_holder(self, node, name="training", **more):
        container = {"name": "c", "resources": {"limits": {RESOURCE: "1", "cpu": "1"}}}
        meta = {"name": name, "namespace": "default", **more}
        spec = {"nodeName": node, "containers": [container]}
        self.server.put(USING_POD, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

    def drivers(self):
        """The driver's image on each node that has one."""
        return {
            pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
            for pod in self.server.documents("pods")
            if pod["metadata"]["namespace"] == NAMESPACE
        }

    def holders(self):
        pods = self.server.documents("pods")
        return {p["metadata"]["name"] for p in pods if p["metadata"]["namespace"] == "default"}

    async def installed(self):
        """Version 1 runs on both nodes."""
        await until(lambda: DRIVER in self.stored("daemonsets"))
        self.roll_out(DRIVER, desired=2, available=2)
        for node in (FIRST_NODE, SECOND_NODE):
            self.start_driver(node)
        await until(lambda: self.reason() == "DriversCurrent")

    async def next_version(self, **upgrade):
        """The policy asks for version 2, and the DaemonSet has it."""
        before = self.image()
        self.policy(self.spec("2", **upgrade))
        await until(lambda: self.image() != before)
        self.roll_out(DRIVER, desired=2, available=2)

    def reason(self):
        conditions = self.status().get("conditions", ())
        return next((c["reason"] for c in conditions if c["type"] == "DriversCurrent"), "")

    def notes(self):
        return {event["note"] for event in self.server.documents("events")}


@pytest.fixture
def world():
    world = UpgradeWorld()
    world.policy(world.spec("1"))
    return world


async def test_idle_nodes_get_the_next_driver_one_after_the_other(world):
    async with world.operator():
        await world.installed()
        await world.next_version()
        await until(lambda: set(world.drivers()) == {SECOND_NODE})
        await until(lambda: world.reason() != "DriversCurrent")
        world.start_driver(FIRST_NODE, ready=False)
        await until(lambda: world.reason() == "Upgrading")
        assert SECOND_NODE in world.drivers()  # until the first one is ready
        world.start_driver(FIRST_NODE)
        await until(lambda: set(world.drivers()) == {FIRST_NODE})
        world.start_driver(SECOND_NODE)
        await until(lambda: world.reason() == "DriversCurrent")
        await until(lambda: "node ubuntu00: ended driver-ubuntu00" in world.notes())


async def test_pods_that_hold_shares_are_waited_for_and_named(world):
    for node in (FIRST_NODE, SECOND_NODE):
        world.start_holder(node, f"on-{node}")
    async with world.operator():
        await world.installed()
        await world.next_version()
        await until(lambda: world.reason() == "WaitingForPods")
        message = world.condition("DriversCurrent")["message"]
        assert message == (
            "node ubuntu00 waits for the end of default/on-ubuntu00, and 1 more nodes"
        )
        assert set(world.drivers()) == {FIRST_NODE, SECOND_NODE}
        await until(lambda: world.states()["state-OFED"] == "ready")  # the older one serves them


async def test_a_policy_that_drains_closes_the_node_and_opens_it_again(world):
    async with world.operator():
        await world.installed()
        for node in (FIRST_NODE, SECOND_NODE):
            world.start_holder(node, f"on-{node}")
        await world.next_version(drain={"enable": True})
        await until(lambda: world.holders() == {f"on-{SECOND_NODE}"})
        await until(lambda: set(world.drivers()) == {SECOND_NODE})
        assert world.stored("nodes")[FIRST_NODE]["spec"]["unschedulable"]
        world.start_driver(FIRST_NODE)
        await until(lambda: not world.stored("nodes")[FIRST_NODE]["spec"].get("unschedulable"))
        meta = world.stored("nodes")[FIRST_NODE]["metadata"]
        assert CLOSED_MARK not in meta.get("annotations", {})


async def test_a_daemon_set_s_pod_is_not_evicted_for_it_would_be_back(world):
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "7"}
    async with world.operator():
        await world.installed()
        for node in (FIRST_NODE, SECOND_NODE):
            world.start_holder(node, f"on-{node}", ownerReferences=[owner])
        await world.next_version(drain={"enable": True})
        await until(lambda: world.reason() == "WaitingForPods")
        assert world.holders() == {f"on-{FIRST_NODE}", f"on-{SECOND_NODE}"}
        assert not world.stored("nodes")[FIRST_NODE]["spec"].get("unschedulable")


async def test_the_driver_of_a_card_that_the_node_needs_stays_with_its_reason(world):
    """A report says what leads through a card; an address of the node counts too."""
    address = {"type": "InternalIP", "address": "10.0.0.2"}
    meta = {"name": SECOND_NODE, "labels": LABELS}
    world.server.put(NODE, {"metadata": meta, "spec": {}, "status": {"addresses": [address]}})
    needed = {
        FIRST_NODE: {"carries": ["the default route leads through ens2f0"]},
        SECOND_NODE: {"addresses": ["10.0.0.2"]},
    }
    for node, facts in needed.items():
        card = {"id": "0000:17:00.0", "name": "mlx5_0", **facts}
        status = {"agentVersion": "1", "summary": {"cards": 1, "healthy": 1}, "cards": [card]}
        world.server.put(NODE_REPORT, {"metadata": {"name": node}, "status": status})
    async with world.operator():
        await world.installed()
        await world.next_version(drain={"enable": True})
        await until(lambda: world.reason() == "UpgradeRefused")
        assert world.condition("DriversCurrent")["message"] == (
            "node ubuntu00 needs its cards: mlx5_0: the default route leads through ens2f0,"
            " and 1 more nodes"
        )
        assert set(world.drivers()) == {FIRST_NODE, SECOND_NODE}
        events = world.server.documents
        await until(lambda: "UpgradeRefused" in {one["reason"] for one in events("events")})


async def test_a_policy_by_hand_touches_no_pod(world):
    async with world.operator():
        await world.installed()
        await world.next_version(autoUpgrade=False)
        await until(lambda: world.reason() == "UpgradeByHand")
        assert set(world.drivers()) == {FIRST_NODE, SECOND_NODE}


async def test_what_was_closed_is_opened_where_nothing_is_to_be_upgraded(world):
    meta = {"name": FIRST_NODE, "labels": LABELS, "annotations": {CLOSED_MARK: "true"}}
    world.server.put(NODE, {"metadata": meta, "spec": {"unschedulable": True}})
    async with world.operator():
        await until(lambda: DRIVER in world.stored("daemonsets"))
        for node in (FIRST_NODE, SECOND_NODE):
            world.start_driver(node)
        await until(lambda: not world.stored("nodes")[FIRST_NODE]["spec"].get("unschedulable"))
