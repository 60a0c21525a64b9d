"""`kube-rdma top` from the outside: agents in memory behind an API server in memory."""

import json
from itertools import count

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.cluster.kinds.workload import DAEMON_SETS, DEPLOYMENTS
from kube_rdma.programs.cli.top import top
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.opener import opener_of

PORT = 9879
SHARED = 'namespace="other",pod="p",container="c",resource="r",device="mlx5_1",access="shared"'
HEAD = "NODE    DEVICE  PORT  STATE   LINK"


class World:
    """Two agents; that of node-1 has a card that receives, and two pods on it."""

    def __init__(self, *options):
        self.server = FakeServer((DAEMON_SETS, DEPLOYMENTS))
        args = ["agent", "--role=plugin", *options]
        template = {"spec": {"containers": [{"image": "kube-rdma", "args": args}]}}
        spec = {"template": template, "selector": {"matchLabels": {"name": "agent"}}}
        self.server.put(DAEMON_SETS, {"metadata": meta("agent"), "spec": spec})
        for number in (1, 2):
            labels = {"name": "agent"}
            document = {"metadata": meta(f"agent-{number}", labels=labels), "status": {}}
            self.server.put(POD, document | {"spec": {"nodeName": f"node-{number}"}})
        self.scrapes = count(1)
        self.server.answering["kr", f"agent-1:{PORT}"] = self.answer

    def answer(self, path):
        assert path == "metrics"
        scrape = next(self.scrapes)
        port = 'device="mlx5_0",port="1"'
        pod = f'namespace="ns",pod="train-0",container="c",{port}'
        return "\n".join(
            (
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


def meta(name, **more):
    return {"name": name, "namespace": "kr", **more}


@pytest.fixture
def world():
    return World(f"--metrics-address=10.0.0.1:{PORT}")


def test_nodes_show_their_ports_and_who_was_silent(world):
    result = world.run("nodes")
    assert result.exit_code == 0, result.output
    head, row, _, silent, *_ = result.output.splitlines()
    assert head.startswith(HEAD)
    assert row.split()[:5] == ["node-1", "mlx5_0", "1", "active", "400G"]
    assert silent.startswith("node-2 did not answer: ")
    assert "connection refused" in result.output


def test_pods_show_traffic_or_that_it_is_shared(world):
    result = world.run("pods", "-A")
    _, busy, shared, *_ = result.output.splitlines()
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
    assert 0 < row["receivedBytesPerSecond"] <= 10**10
    assert row["sentBytesPerSecond"] is None
    assert set(document["silentNodes"]) == {"node-2"}


@pytest.mark.parametrize(
    "options",
    [("--metrics-address", f"10.0.0.1:{PORT}"), (f"--metrics-address=[::1]:{PORT}",)],
)
def test_the_port_is_read_from_the_agent_s_words(options):
    assert "mlx5_0" in World(*options).run("nodes").output


def test_without_metrics_it_says_how_to_have_them():
    error = World().run("nodes").exception
    assert isinstance(error, Refused)
    assert "metrics.port" in str(error)


def test_a_right_that_is_missing_is_said_for_each_node(world):
    world.server.forbidden.add(("get", "pods/proxy"))
    result = world.run("nodes")
    assert "node-1 did not answer" in result.output
    assert 'cannot get resource "pods/proxy"' in " ".join(result.output.split())


def test_an_agent_that_speaks_something_else_is_silent(world):
    world.server.answering["kr", f"agent-2:{PORT}"] = lambda _: "<html>"
    result = world.run("nodes")
    assert "node-2 did not answer" in result.output
    assert "not in the format of Prometheus" in " ".join(result.output.split())
