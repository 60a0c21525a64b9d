"""An API server that is away for ten minutes: the operator comes back to what counts by then."""

from copy import deepcopy

from kube_base.backoff import full_jitter
from kube_client.calls import RequestTiming
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SET
from tests.unit.agent.world import until
from tests.unit.operator.documents.test_nic_cluster_policy import SEED
from tests.unit.operator.test_reconcile import DRIVER, PEER, PLUGIN, ClusterWorld

STREAMS = 5  # policies, nodes, DaemonSets, their pods and ConfigMaps
OUTAGE = 600.0  # seconds


class PassingTime:
    """A clock that goes on while somebody waits, and only then."""

    def __init__(self):
        self.now = 0.0

    def pause(self, failures):
        """Wait as the product does, in no time."""
        self.now += full_jitter(failures)
        return 0.0


async def test_ten_minutes_without_an_api_server_leave_no_trace():
    """A policy, a node and a DaemonSet change meanwhile, and the server forgets its history."""
    time = PassingTime()
    world = ClusterWorld(RequestTiming(clock=lambda: time.now, pause=time.pause))
    world.policy(SEED)
    async with world.operator():
        await world.all_ready()
        begin = time.now
        world.line.cut()
        await until(lambda: time.now > begin + STREAMS * OUTAGE)
        world.policy({"devicePlugin": SEED["devicePlugin"]})
        world.server.remove(NODE, "ubuntu00")
        world.node("newer")
        document = deepcopy(world.stored("daemonsets")[PLUGIN])
        document["spec"]["template"]["spec"]["priorityClassName"] = "low"
        world.server.put(DAEMON_SET, document)
        world.server.compact()
        world.line.mend()
        await world.until(lambda: set(world.stored("daemonsets")) == {PLUGIN})

        def pod():
            return world.stored("daemonsets")[PLUGIN]["spec"]["template"]["spec"]

        await world.until(lambda: pod()["priorityClassName"] == "system-node-critical")
        await world.until(lambda: world.states().get("state-OFED") == "ignore")
        await until(lambda: world.line.watching == STREAMS)
    assert {DRIVER, PEER}.isdisjoint(world.stored("daemonsets"))
