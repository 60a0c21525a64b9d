"""The metrics in the hands of the real Prometheus: it scrapes an agent, and its alerts fire.

The agent's kernel and kubelet are fakes, as in the unit tests; Prometheus and promtool are those of
Debian. Nothing here needs a cluster.
"""

import asyncio
import json
from dataclasses import replace
from urllib.error import URLError

import pytest

from kube_rdma.model.metrics import MetricNames
from kube_rdma.programs.agent.metrics.exporter import Exporter, MetricsSite, MetricsSources
from kube_rdma.rules.metrics import families
from kube_rdma.rules.metrics.alerts import rule_groups
from kube_rdma_testing.kernel.tree import write_tree
from kube_rdma_testing.kernel.tree_counters import write_counters
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.kit import prometheus as kit
from tests.unit.programs.agent.world import VKE, World, hard_card

RECEIVED = families.OF_POD["port_rcv_data"].name


@pytest.fixture(scope="module")
def program():
    with kit.programs() as folder:
        yield folder


@pytest.fixture
def tree(tmp_path):
    write_tree(tmp_path / "sys", [hard_card(0), hard_card(1)])
    for file in (*families.OF_NODE, "sent_pkts"):
        hardware = file in families.HARDWARE or file not in families.OF_NODE
        folder = "hw_counters" if hardware else "counters"
        write_counters(tmp_path / "sys", "mlx5_0/ports/1", folder, {file: 1000})
    return tmp_path / "sys"


@pytest.fixture
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("w"), hard_card(0), hard_card(1))
    world.label("exclusive")
    return world


async def seen(condition):
    """Wait until Prometheus says so; while it starts it says nothing."""

    def ask():
        try:
            return condition()
        except (URLError, ConnectionError):
            return False

    async with asyncio.timeout(120):
        while not await asyncio.to_thread(ask):  # noqa: ASYNC110  it announces nothing
            await asyncio.sleep(0.05)


def test_promtool_accepts_the_rules(program, tmp_path):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"groups": rule_groups()}))
    code, text = kit.check(program, "rules", path)
    assert (code, "SUCCESS" in text) == (0, True), text


async def test_a_pods_traffic_and_its_dead_port_reach_prometheus(program, world, tree, tmp_path):
    doors = world.doors()
    sources = MetricsSources(doors.kubelet, sysfs=tree)
    exporter = Exporter(MetricsSite("127.0.0.1", 0, tuple(MetricNames)), sources)
    async with world.serving(replace(doors, metrics=exporter)):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)
        place = ContainerPlace("train-0", "worker")
        await world.kubelet.allocate(VKE, 1, (f"{hard_card(0).pci}-0",), place=place)
        target = f"127.0.0.1:{exporter.server.port}"
        with kit.running(program, tmp_path, target, rule_groups()) as prometheus:
            at = ("train-0", "mlx5_0")
            await seen(lambda: prometheus.values(RECEIVED) == {at: 4000})
            write_counters(tree, "mlx5_0/ports/1", "counters", {"port_rcv_data": 3000})
            await seen(lambda: prometheus.values(RECEIVED) == {at: 12000})
            assert ("KubeRdmaPodPortDown", "train-0") not in prometheus.firing()
            (tree / "class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
            await seen(lambda: ("KubeRdmaPodPortDown", "train-0") in prometheus.firing())
            world.kubelet.remove_pod("train-0")
            await seen(lambda: prometheus.values(RECEIVED) == {})
        path = tmp_path / "metrics.txt"
        path.write_bytes(await exporter.answer())
        code, text = kit.check(program, "metrics", path)
    assert (code, text) == (0, ""), text
