"""`kube-rdma doctor` of nodes and pods elsewhere, against a cluster in memory with its agents."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.files import bundle
from kube_rdma.programs.cli.doctor import doctor
from tests.kit.agents import FleetOfAgents
from tests.kit.opener import opener_of
from tests.unit.rules.doctor.healthy import HEALTHY

ILL = replace(HEALTHY, kubelet=replace(HEALTHY.kubelet, sockets=()))


@pytest.fixture
def fleet():
    return FleetOfAgents("node-1", "node-2", seen=HEALTHY, pods={("train", "w-0"): "node-2"})


@pytest.fixture
def run(fleet, tmp_path):
    """Run it on a machine that is no node."""

    def call(*words):
        given = [*words, "--state-dir", str(tmp_path / "no-node")]
        obj = opener_of(fleet.server)
        env = {"NODE_NAME": None}
        return CliRunner().invoke(doctor, given, obj=obj, env=env, catch_exceptions=False)

    return call


def test_a_node_is_shown_as_on_itself(run):
    result = run("node/node-2")
    assert result.exit_code == 0
    assert result.stdout.startswith("node node-2 · 2 RDMA devices")
    assert result.stdout.splitlines()[-1].startswith("Nothing is wrong in what was seen")


def test_a_fault_of_a_node_is_the_exit_code(run, fleet):
    fleet.seen["node-2"] = replace(ILL, node="node-2")
    assert run("node/node-1").exit_code == 0
    assert run("node/node-2").exit_code == 1


def test_a_pod_is_looked_at_on_its_node(run, fleet):
    document = json.loads(run("pod/w-0", "-n", "train", "-o", "json").stdout)
    assert (document["node"], document["pod"]) == ("node-2", "train/w-0")
    assert [one.argv[2] for one in fleet.commands] == ["pod/train/w-0"]


def test_a_machine_with_the_agents_records_is_a_node_and_asks_no_other(fleet, tmp_path):
    words = ["pod/train/w-0", "--state-dir", str(tmp_path), "--node-name", "node-1"]
    result = CliRunner().invoke(doctor, words, obj=opener_of(fleet.server))
    assert result.stdout.startswith("train/w-0 on node-1")
    assert fleet.commands == []


def test_all_nodes_come_on_one_page(run, fleet):
    assert run("--all-nodes").exit_code == 0
    fleet.seen["node-1"] = replace(ILL, node="node-1")
    result = run("--all-nodes")
    assert result.exit_code == 1
    assert "✗ KR201  1 of 2 nodes  kubelet" in result.stdout
    document = json.loads(run("--all-nodes", "-o", "json").stdout)
    assert [one["node"] for one in document["nodes"]] == ["node-1", "node-2"]


def test_a_node_that_did_not_answer_is_an_exit_code_of_its_own(run, fleet):
    fleet.failing["node-1"] = "it broke"
    result = run("--all-nodes")
    assert result.exit_code == 6
    assert "? Not seen: node-1" in result.stdout


def test_what_a_node_answers_moves_no_cursor(run, fleet):
    """Its words are foreign text."""
    system = replace(HEALTHY.versions, kernel="6.8\x1b[2J")
    fleet.seen["node-1"] = replace(HEALTHY, node="node-1", versions=system)
    assert "\x1b" not in run("node/node-1").stdout


def test_a_bundle_of_a_node_is_kept_here(run, tmp_path):
    run("node/node-2", "--collect", str(tmp_path / "b.json"))
    assert bundle.read(tmp_path / "b.json") == replace(HEALTHY, node="node-2")


@pytest.mark.parametrize(
    "words",
    [("node/",), ("node/a/b",), ("--all-nodes", "node/a"), ("--all-nodes", "--bundle", "x")],
)
def test_what_cannot_be_meant_is_a_usage_error(run, words):
    assert run(*words).exit_code == 2


def test_a_namespace_without_agents_is_refused(run):
    with pytest.raises(Refused, match="no agent runs in namespace default"):
        run("--all-nodes", "--agent-namespace", "default")
