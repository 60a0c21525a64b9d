"""`kube-rdma top` from the outside: agents in memory behind an API server in memory."""

import json
from itertools import count

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.cli.top import top
from tests.kit.agents import NAMESPACE, FleetOfAgents
from tests.kit.opener import opener_of

KINDS = ("pods", "daemonsets", "deployments")
SHARED = 'namespace="other",pod="p",container="c",resource="r",device="mlx5_1",access="shared"'
HEAD = "NODE    DEVICE  PORT  STATE   LINK"


class World(FleetOfAgents):
    """Two agents; that of node-1 has a card that receives, and two pods on it."""

    def __init__(self):
        super().__init__("node-1", "node-2")
        self.failing["node-2"] = "no such command 'scrape'"
        self.scrapes = count(1)

    def _bundle(self, node, target):
        """What `kube-rdma top scrape` prints: 10^9 bytes more for each second of the node."""
        assert target == "scrape"
        scrape = next(self.scrapes)
        port = 'device="mlx5_0",port="1"'
        pod = f'namespace="ns",pod="train-0",container="c",{port}'
        return "\n".join(
            (
                f"# read {100.0 + scrape}",
                "# TYPE node_infiniband_port_data_received_bytes_total counter",
                f"node_infiniband_port_data_received_bytes_total{{{port}}} {scrape * 10**9}",
                f"node_infiniband_state_id{{{port}}} 4",
                f"node_infiniband_rate_bytes_per_second{{{port}}} 5e10",
                f"kube_rdma_pod_port_data_received_bytes_total{{{pod}}} {scrape * 10**9}",
                f'kube_rdma_pod_hw_stat{{{pod},counter="retry_exceeded_err"}} {scrape * 100}',
                f"kube_rdma_pod_device_info{{{SHARED}}} 1",
                "",
            )
        )

    def run(self, *words):
        return CliRunner().invoke(
            top, [*words, "--once", "--interval", "0.1"], obj=opener_of(self.server)
        )


@pytest.fixture
def world():
    return World()


def test_nodes_show_their_ports_and_who_was_silent(world):
    result = world.run("nodes")
    assert result.exit_code == 0, result.output
    head, row, _, silent, *_ = result.output.splitlines()
    assert head.startswith(HEAD)
    assert row.split()[:5] == ["node-1", "mlx5_0", "1", "active", "400G"]
    assert silent.startswith("node-2 did not answer: ")
    assert "no such command 'scrape'" in " ".join(result.output.split())


def test_pods_show_traffic_or_that_it_is_shared(world):
    _, busy, shared, *_ = world.run("pods", "-A").output.splitlines()
    assert busy.split()[:4] == ["ns/train-0", "c", "node-1", "mlx5_0"]
    assert "Gb/s" in busy
    assert busy.endswith("retry_exceeded_err")
    assert shared.split()[:6] == ["other/p", "c", "node-1", "mlx5_1", "shared", "shared"]


def test_a_namespace_is_chosen_and_the_document_has_bytes(world):
    document = json.loads(world.run("pods", "-n", "ns", "-o", "json").stdout)
    (row,) = document["rows"]
    assert (row["pod"], row["device"], row["port"], row["shared"]) == (
        "train-0",
        "mlx5_0",
        1,
        False,
    )
    assert row["receivedBytesPerSecond"] == 10**9, "by the node's clock, not by ours"
    assert row["sentBytesPerSecond"] is None
    assert set(document["silentNodes"]) == {"node-2"}


def test_it_runs_a_command_in_the_agents_containers_and_asks_no_port(world):
    assert world.run("nodes").exit_code == 0
    assert {tuple(one.argv) for one in world.commands} == {("kube-rdma", "top", "scrape")}
    assert {(one.namespace, one.container) for one in world.commands} == {(NAMESPACE, "agent")}


def test_the_role_of_the_doctor_is_enough(world):
    """It is of the agents' namespace: nothing is read of the cluster."""
    world.server.forbidden |= {(verb, f"*/{kind}") for verb in ("get", "list") for kind in KINDS}
    assert "mlx5_0" in world.run("nodes").output


def test_without_an_agent_it_names_the_namespaces(world):
    for node in world.nodes:
        world.server.remove(POD, f"agent-{node}", NAMESPACE)
    error = world.run("nodes", "--agent-namespace", NAMESPACE).exception
    assert isinstance(error, Refused)
    assert "no agent runs in namespace kube-rdma" in str(error)


def test_a_right_that_is_missing_is_said_for_each_node(world):
    world.server.forbidden.add(("get", "pods/exec"))
    result = world.run("nodes")
    assert "node-1 did not answer" in result.output
    assert 'cannot get resource "pods/exec"' in " ".join(result.output.split())


@pytest.mark.parametrize("text", ["<html>", "# read x\n", "# read 1.0\n{{{"])
def test_an_agent_that_speaks_something_else_is_silent(world, text):
    world.failing.clear()
    world.texts["node-2"] = text
    result = world.run("nodes")
    assert "node-2 did not answer" in result.output
    assert "not in the format of Prometheus" in " ".join(result.output.split())
