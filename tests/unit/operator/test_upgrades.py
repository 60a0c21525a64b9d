"""The operator has drivers come, go and be exchanged: when, in which order, and what it says."""

import copy

import pytest

from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SET, FULL_POD
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY
from kube_rdma.operator.rules.placement import DRIVER_LABEL
from kube_rdma.operator.upgrades import CLOSED_MARK
from tests.unit.agent.world import until
from tests.unit.operator.documents.test_nic_cluster_policy import SEED
from tests.unit.operator.test_reconcile import (
    DRIVER,
    FEATURE,
    LABELS,
    NAMESPACE,
    PEER,
    PLUGIN,
    ClusterWorld,
)

CONTROLLER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "r",
    "uid": "7",
    "controller": True,
}
EXCLUDING = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]
    }
}
FIRST_NODE, SECOND_NODE = "ubuntu00", "ubuntu01"
RESOURCE = "rdma/hca_shared_devices_a"


class UpgradeWorld(ClusterWorld):
    """Two nodes with a driver each, and the policy's next version."""

    def __init__(self):
        super().__init__()
        self.node(SECOND_NODE)

    def spec(self, version, **upgrade):
        policy = {"autoUpgrade": True, **upgrade}
        return {"ofedDriver": {**SEED["ofedDriver"], "version": version, "upgradePolicy": policy}}

    def start_holder(self, node, name="training", resource=RESOURCE, **more):
        container = {"name": "c", "resources": {"limits": {resource: "1", "cpu": "1"}}}
        meta = {"name": name, "namespace": "default", "ownerReferences": [CONTROLLER], **more}
        spec = {"nodeName": node, "containers": [container]}
        self.server.put(FULL_POD, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

    def drivers(self):
        """The version of the driver on each node that has one."""
        return {
            node: pod["spec"]["containers"][0]["image"].partition(":")[0].rpartition("-")[2]
            for node, pod in self.controller.pods(DRIVER).items()
        }

    def holders(self):
        pods = self.server.documents("pods")
        return {p["metadata"]["name"] for p in pods if p["metadata"]["namespace"] == "default"}

    def unschedulable(self, node):
        return self.stored("nodes")[node]["spec"].get("unschedulable", False)

    def needs_its_cards(self, node, **facts):
        """The node's agent reports what it needs its card for."""
        card = {"id": "0000:17:00.0", "name": "mlx5_0", **facts}
        status = {"agentVersion": "1", "summary": {"cards": 1, "healthy": 1}, "cards": [card]}
        self.server.put(NODE_REPORT, {"metadata": {"name": node}, "status": status})

    async def installed(self):
        """Version 1 runs on both nodes."""
        both = {FIRST_NODE: "1", SECOND_NODE: "1"}
        await self.until(lambda: self.reason() == "DriversCurrent" and self.drivers() == both)
        await self.until(lambda: not any(map(self.unschedulable, both)))

    async def stays(self, operator, reason):
        """The operator gives this reason, and has ended no driver."""
        await self.until(lambda: self.reason() == reason)
        await self.looks(operator)
        assert self.controller.ended == []

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
        world.policy(world.spec("2"))
        world.controller.fails = {FIRST_NODE}
        await world.until(lambda: world.drivers()[FIRST_NODE] == "2")
        await world.until(lambda: world.reason() == "Upgrading")
        assert world.drivers()[SECOND_NODE] == "1"  # until the first one is ready
        assert world.unschedulable(FIRST_NODE)
        world.controller.fails = set()
        await world.until(lambda: set(world.drivers().values()) == {"2"})
        await world.until(lambda: world.reason() == "DriversCurrent")
        await until(lambda: any(f"node {FIRST_NODE}: ended" in one for one in world.notes()))


async def test_pods_that_hold_shares_are_waited_for_and_named(world):
    async with world.operator() as operator:
        await world.installed()
        for node in (FIRST_NODE, SECOND_NODE):
            world.start_holder(node, f"on-{node}")
        world.policy(world.spec("2"))
        await world.stays(operator, "WaitingForPods")
        message = world.condition("DriversCurrent")["message"]
        assert message == ("node ubuntu00 waits for default/on-ubuntu00 to end, and 1 more nodes")
        await world.until(lambda: world.states()["state-OFED"] == "ready")  # the older one serves


@pytest.mark.parametrize(
    "resource", ["openshift.io/mlxnics", "nvidia.com/hostdev", "intel.com/sriov_rdma", "a.b/c"]
)
async def test_shares_of_another_plugin_are_waited_for_too(world, resource):
    """No report says whose they are."""
    world.server.remove(NODE, SECOND_NODE)
    world.start_holder(FIRST_NODE, resource=resource)
    async with world.operator():
        await world.until(lambda: world.reason() == "WaitingForPods")
        assert world.drivers() == {}


@pytest.mark.parametrize(
    "facts", [{"carries": ["the default route leads through ens2f0"]}, {"addresses": ["10.0.0.2"]}]
)
async def test_a_node_that_needs_its_cards_gets_no_driver_and_says_why(world, facts):
    """A report says what leads through a card; an address of the node counts too."""
    address = {"type": "InternalIP", "address": "10.0.0.2"}
    meta = {"name": FIRST_NODE, "labels": LABELS}
    world.server.put(NODE, {"metadata": meta, "spec": {}, "status": {"addresses": [address]}})
    world.needs_its_cards(FIRST_NODE, **facts)
    async with world.operator():
        await world.until(lambda: world.drivers() == {SECOND_NODE: "1"})
        await world.until(lambda: world.reason() == "UpgradeRefused")
        why = "node ubuntu00 itself uses its cards: mlx5_0: "
        assert world.condition("DriversCurrent")["message"].startswith(why)
        await world.until(lambda: why in world.status()["reason"])
        events = world.server.documents
        await until(lambda: "UpgradeRefused" in {one["reason"] for one in events("events")})


async def test_a_report_that_cannot_be_read_holds_up_its_own_node_alone(world):
    """What the node needs its cards for is not known; it held up all nodes."""
    async with world.operator():
        await world.installed()
        world.server.put(NODE_REPORT, {"metadata": {"name": FIRST_NODE}, "status": {"cards": 5}})
        world.needs_its_cards(SECOND_NODE)
        world.policy(world.spec("2"))
        await world.until(lambda: world.drivers() == {FIRST_NODE: "1", SECOND_NODE: "2"})
        await world.until(lambda: "cannot be read" in world.condition("DriversCurrent")["message"])


async def test_a_node_without_a_report_is_told_before_its_driver_is_changed(world):
    """Nobody knows what leads through its cards; of a node that reports it is known."""
    world.needs_its_cards(SECOND_NODE)
    async with world.operator():
        await world.until(lambda: world.drivers() == {FIRST_NODE: "1", SECOND_NODE: "1"})
    notes = [note for note in world.notes() if "has no NodeReport" in note]
    (note,) = notes
    assert note.startswith(
        f"node {FIRST_NODE} has no NodeReport: routes and storage over its cards"
    )


LEAVING = {
    "the policy is deleted": lambda world: world.server.remove(
        NIC_CLUSTER_POLICY, "example-nicclusterpolicy", NAMESPACE
    ),
    "the section is removed": lambda world: world.policy({}),
    "an affinity excludes it": lambda world: world.policy(
        {**world.spec("1"), "nodeAffinity": EXCLUDING}
    ),
    "its kernel is another": lambda world: world.relabel(
        FIRST_NODE, **{f"{FEATURE}/kernel-version.full": "6.8.0"}
    ),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
@pytest.mark.parametrize("needed", [False, True])
async def test_a_driver_goes_when_nobody_needs_it_and_never_before(world, leave, needed):
    """Whatever the reason: pods that hold shares are waited for, a node's own routes refuse it."""
    world.server.remove(NODE, SECOND_NODE)
    async with world.operator() as operator:
        await world.until(lambda: world.reason() == "DriversCurrent" and world.drivers())
        world.start_holder(FIRST_NODE)
        if needed:
            world.needs_its_cards(FIRST_NODE, carries=["the default route leads through ens2f0"])
        leave(world)
        await world.looks(operator)
        assert (world.controller.ended, world.drivers()) == ([], {FIRST_NODE: "1"})
        world.server.remove(FULL_POD, "training", "default")
        if needed:
            await world.looks(operator)
            assert world.controller.ended == []
            world.server.remove(NODE_REPORT, FIRST_NODE)
        await world.until(lambda: (FIRST_NODE, DRIVER) in world.controller.ended)
        await world.until(lambda: DRIVER not in world.stored("daemonsets"))
        await world.until(lambda: not world.unschedulable(FIRST_NODE))


async def test_labels_that_vanish_unload_no_driver(world):
    """Node Feature Discovery that is uninstalled takes all of them at once."""
    async with world.operator() as operator:
        await world.installed()
        for node in (FIRST_NODE, SECOND_NODE):
            world.relabel(node, **dict.fromkeys(LABELS))
        await world.looks(operator)
        assert world.controller.ended == []
        assert world.drivers() == {FIRST_NODE: "1", SECOND_NODE: "1"}


async def test_drivers_of_an_earlier_release_run_on(world):
    """Their DaemonSet selected labels of Node Feature Discovery, and belonged to the policy."""
    async with world.operator():
        await world.installed()
    document = world.stored("daemonsets")[DRIVER]
    uid = world.stored("nicclusterpolicies")["example-nicclusterpolicy"]["metadata"]["uid"]
    owner = {"kind": "NicClusterPolicy", "apiVersion": "mellanox.com/v1alpha1", "uid": uid}
    meta = {
        "name": DRIVER,
        "namespace": NAMESPACE,
        "labels": {"kube-rdma.io/component": "state-OFED"},
        "ownerReferences": [{**owner, "name": "example-nicclusterpolicy"}],
    }
    template = copy.deepcopy(document["spec"]["template"])
    template["spec"]["nodeSelector"] = dict(LABELS)
    world.server.put(
        DAEMON_SET, {"metadata": meta, "spec": {**document["spec"], "template": template}}
    )
    for node in (FIRST_NODE, SECOND_NODE):
        world.start_holder(node, f"on-{node}")
        world.relabel(node, **{DRIVER_LABEL: None})
    world.controller.step()
    assert world.controller.ended == []
    async with world.operator() as operator:
        await world.until(
            lambda: (
                DRIVER_LABEL
                in world.stored("daemonsets")[DRIVER]["spec"]["template"]["spec"]["nodeSelector"]
            )
        )
        await world.looks(operator)
        assert world.controller.ended == []
        assert world.reason() == "DriversCurrent"


async def test_a_policy_that_drains_closes_the_node_and_opens_it_again(world):
    async with world.operator():
        await world.installed()
        for node in (FIRST_NODE, SECOND_NODE):
            world.start_holder(node, f"on-{node}")
        world.policy(world.spec("2", drain={"enable": True}))
        world.controller.fails = {FIRST_NODE}
        await world.until(lambda: world.holders() == {f"on-{SECOND_NODE}"})
        await world.until(lambda: world.drivers()[FIRST_NODE] == "2")
        assert world.unschedulable(FIRST_NODE)
        world.controller.fails = set()
        await world.until(lambda: not world.unschedulable(FIRST_NODE))
        meta = world.stored("nodes")[FIRST_NODE]["metadata"]
        assert CLOSED_MARK not in meta.get("annotations", {})


NOT_EVICTED = {
    "of a DaemonSet": ({}, {"ownerReferences": [{**CONTROLLER, "kind": "DaemonSet"}]}),
    "of nobody": ({}, {"ownerReferences": []}),
    "of other labels": ({"podSelector": "app=web"}, {"labels": {"app": "training"}}),
}


@pytest.mark.parametrize(("drain", "pod"), NOT_EVICTED.values(), ids=NOT_EVICTED)
async def test_a_pod_that_the_drain_leaves_alone_is_waited_for(world, drain, pod):
    """One of a DaemonSet would be back; the others the policy does not let be evicted."""
    async with world.operator() as operator:
        await world.installed()
        for node in (FIRST_NODE, SECOND_NODE):
            world.start_holder(node, f"on-{node}", **pod)
        world.policy(world.spec("2", drain={"enable": True, **drain}))
        await world.stays(operator, "WaitingForPods")
        assert world.holders() == {f"on-{FIRST_NODE}", f"on-{SECOND_NODE}"}
        assert not world.unschedulable(FIRST_NODE)


async def test_pods_whose_completion_the_policy_waits_for_hold_up_their_node(world):
    """Whatever they ask for."""
    async with world.operator() as operator:
        await world.installed()
        for node in (FIRST_NODE, SECOND_NODE):
            world.start_holder(node, f"on-{node}", "example.com/gpu", labels={"app": "training"})
        wait = {"podSelector": "app in (training, web)"}
        world.policy(world.spec("2", waitForCompletion=wait, drain={"force": True}))
        await world.stays(operator, "WaitingForPods")


async def test_a_changed_environment_is_another_driver(world):
    async with world.operator():
        await world.installed()
        spec = world.spec("1")
        spec["ofedDriver"]["env"] = [{"name": "UNLOAD_STORAGE_MODULES", "value": "false"}]
        world.policy(spec)
        await world.until(lambda: len(world.controller.ended) == 2)
        await world.installed()


async def test_a_node_that_is_away_holds_up_no_other(world):
    """It is the first by name, and would be the first to get its driver."""
    gone = {"type": "Ready", "status": "Unknown"}
    meta = {"name": FIRST_NODE, "labels": LABELS}
    world.server.put(NODE, {"metadata": meta, "spec": {}, "status": {"conditions": [gone]}})
    world.controller.away = {FIRST_NODE}
    world.policy(SEED)
    async with world.operator():
        await world.until(lambda: SECOND_NODE in world.controller.pods(PLUGIN))
        await world.until(lambda: SECOND_NODE in world.controller.pods(PEER))
        assert world.drivers().keys() == {SECOND_NODE}
        await world.until(lambda: world.reason() == "NodesAway")
