"""Seed S3's policy over ten native nodes at once: the operator's whole test, in its own lab.

And drivers, device plugin and its configuration while one of the ten is away, which holds up none
of the others.
"""

from contextlib import contextmanager

import pytest

from kube_rdma_lab import cluster, signs, waiting
from tests.groups import own
from tests.kit import recorder, stand_in_drivers
from tests.kit.stand_in_drivers import written
from tests.lab.conftest import up

from .test_operator import *  # noqa: F403  the same tests, and their fixtures
from .test_operator import NAMESPACE, PLUGIN, RESOURCE, policy

pytestmark = pytest.mark.slow
NAME = "test-ten"
NODES = tuple(f"node-{number}" for number in range(1, 11))
AWAY, OTHERS = NODES[0], NODES[1:]  # the first by name would be the first that is changed
PARALLEL = 3
CONFIGURED = "kube-rdma.io/config-hash"  # annotation of the plugin's pods


@pytest.fixture(scope="module")
def native():
    """Ten nodes; KUBE_RDMA_TEST_TEN=NAME takes a running lab."""
    command = "kube-rdma lab up --topology native:10"
    with up(own(NAME), "native:10", command, "KUBE_RDMA_TEST_TEN") as running:
        assert tuple(node.name for node in running.topology.nodes) == NODES
        yield running


@contextmanager
def away(lab, node):
    """The node's kubelet has ended, and the cluster knows; it is back afterwards."""
    cluster.shell(lab, node, "sv", "-w", "60", "down", "kubelet")
    cluster.wait(lab, f"node/{node}", "--for=condition=Ready=Unknown")
    yield
    cluster.shell(lab, node, "sv", "up", "kubelet")
    cluster.wait(lab, f"node/{node}", "--for=condition=Ready")


def wanted(lab, version, shares):
    """Drivers of a version on three nodes at a time, and a plugin of so many shares."""
    plugin = policy(lab, rdmaHcaMax=shares)["spec"]["devicePlugin"]
    return stand_in_drivers.policy(version, parallel=PARALLEL, devicePlugin=plugin)


def until_served(lab, version, shares, nodes):
    """Until nodes have driver and shares, by plugins of the present configuration."""
    stand_in_drivers.until_driven(lab, version, nodes)
    for node in nodes:
        cluster.wait_for_resource(lab, RESOURCE, shares, node=node)
    template = cluster.get(lab, "-n", NAMESPACE, PLUGIN)["spec"]["template"]
    configuration = template["metadata"]["annotations"][CONFIGURED]

    def configured():
        pods = cluster.get(lab, "-n", NAMESPACE, "pods", "-l", f"name={PLUGIN.partition('/')[2]}")
        return {
            pod["spec"].get("nodeName")
            for pod in pods["items"]
            if signs.is_ready(pod) and pod["metadata"]["annotations"][CONFIGURED] == configuration
        }

    waiting.until(lab, "plugins of the present configuration", lambda: configured() >= {*nodes})


def until_named(lab):
    """Until the policy says that a node is away, and that all else is done."""
    reason = '{.status.conditions[?(@.type=="DriversCurrent")].reason}'
    cluster.wait(lab, *stand_in_drivers.POLICY, f"--for=jsonpath={reason}=NodesAway")


def test_a_node_that_is_away_holds_up_no_other(lab, tmp_path):
    """From a first load on, and with what it has; it follows when it is back.

    No more than three of the others are changed at a time.
    """
    with (
        stand_in_drivers.on_nodes(lab, NODES),
        recorder.recording(lab, NAMESPACE, tmp_path) as record,
    ):
        with away(lab, AWAY):
            cluster.apply(lab, wanted(lab, "1", 1000))
            until_served(lab, "1", "1k", OTHERS)
            until_named(lab)
            assert not written(lab, AWAY)
        until_served(lab, "1", "1k", NODES)
        cluster.wait(lab, *stand_in_drivers.POLICY, "--for=jsonpath={.status.state}=ready")
        before = written(lab, AWAY)
        with away(lab, AWAY):
            cluster.apply(lab, wanted(lab, "2", 500))
            until_served(lab, "2", "500", OTHERS)
            until_named(lab)
            assert written(lab, AWAY) == before
        until_served(lab, "2", "500", NODES)
        cluster.wait(lab, *stand_in_drivers.POLICY, "--for=jsonpath={.status.state}=ready")
        seen = record()
        cluster.kubectl(lab, "delete", *stand_in_drivers.POLICY, "--wait")
        drivers = ("-n", NAMESPACE, "daemonsets", *stand_in_drivers.DRIVERS)
        waiting.until(lab, "no driver", lambda: not cluster.get(lab, *drivers)["items"])
    turns = [names - {AWAY} for names in recorder.turns(seen)]
    print(len(seen[1]), "events,", len(turns), "turns, at most", max(map(len, turns)), "at a time")
    assert max(map(len, turns)) == PARALLEL
    assert frozenset().union(*turns) == {*OTHERS}
    assert recorder.exposed(seen) <= {AWAY}
