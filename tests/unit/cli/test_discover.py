"""`kube-rdma discover` from the outside, on recorded machines and an API server in memory."""

import json

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.cli.discover import discover
from kube_rdma.discover.written import recorded_node
from kube_rdma.hardware.machines import machine
from kube_rdma.install.installation import all_values
from kube_rdma.lib.text.reader import read
from kube_rdma.model.pools import HARDWARE
from kube_rdma.pools.kind import NODE_POLICY
from kube_rdma.reports.node_report import report_status
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.opener import opener_of

NOW = "2026-01-01T00:00:00Z"
TWO = ("--sysfs", "dgx-like", "--sysfs", "xe9680-like")


class World:
    """Nodes whose agents report the cards of example machines, and the command."""

    def __init__(self):
        self.server = FakeServer((NODE_REPORT, NODE_POLICY))
        for name in ("dgx-1", "dgx-2"):
            self.node(name, "dgx-like")

    def node(self, name, of="", gpus="8", **labels):
        status = {"allocatable": {"nvidia.com/gpu": gpus}}
        meta = {"name": name, "labels": {"kube-rdma.io/link-layer": "infiniband", **labels}}
        self.server.put(NODE, {"metadata": meta, "spec": {}, "status": status})
        if of:
            made = report_status(None, recorded_node(machine(of)).report, NOW)
            report = {"metadata": {"name": name}, "status": msgspec.to_builtins(made)}
            self.server.put(NODE_REPORT, report)

    def run(self, *words):
        return CliRunner().invoke(discover, words, obj=opener_of(self.server))

    def printed(self, *words, code=0):
        outcome = self.run(*words)
        assert outcome.exit_code == code, (outcome.output, outcome.exception)
        return outcome.stdout

    def refusal(self, *words):
        outcome = self.run(*words)
        assert isinstance(outcome.exception, Refused), outcome.output
        return str(outcome.exception)


@pytest.fixture
def world():
    return World()


def test_the_nodes_of_a_cluster_are_one_group(world):
    text = world.printed()
    assert "# 8 × 400G InfiniBand, 8 GPUs      2  rdma/nic  shared" in text
    values, policy = yaml.safe_load_all(text)
    assert values == {"preset": "rails", "agent": {"config": ""}, "networks": {"install": True}}
    assert policy["metadata"]["name"] == "8x400g-infiniband-8-gpus"
    assert policy["spec"] == {"pools": [{"resource": "rdma/nic", "mode": "shared"}]}
    assert policy["metadata"]["annotations"][HARDWARE].count("mlx5_core") == 8


def test_what_is_left_to_fill_in_is_a_comment_that_is_refused_as_it_stands(world):
    text = world.printed("--part", "values")
    for rail in range(8):
        text = text.replace(f"# - {{name: rail-{rail},", f"- {{name: rail-{rail},")
    text = text.replace("# pools:", "pools:")
    with pytest.raises(Refused, match="pools"):
        all_values([read(text.encode(), "values.yaml")])
    for rail in range(8):
        text = text.replace("SUBNET", f"10.0.{rail}.0/24", 1 + (rail == 0))
    names = [one["name"] for one in all_values([read(text.encode(), "values.yaml")])["pools"]]
    assert names == [f"rail-{rail}" for rail in range(8)]


def test_a_part_is_a_file_by_itself(world):
    (values,) = yaml.safe_load_all(world.printed("--part", "values"))
    (policy,) = yaml.safe_load_all(world.printed("--part", "policies"))
    assert (values["preset"], policy["kind"]) == ("rails", "NodePolicy")


def test_several_groups_are_selected_by_labels(world):
    world.node("old", "xe9680-like", "8", **{"kube-rdma.io/link-layer": "ethernet"})
    _, *policies = yaml.safe_load_all(world.printed())
    selectors = [one["spec"]["nodeSelector"] for one in policies]
    assert selectors == [
        {"kube-rdma.io/link-layer": "infiniband"},
        {"kube-rdma.io/link-layer": "ethernet"},
    ]


def test_a_node_without_a_report_is_named(world):
    world.node("late")
    assert "1 node (late): has no NodeReport" in world.printed()
    document = json.loads(world.printed("-o", "json"))
    assert document["unreported"] == ["late"]
    assert document["groups"][0]["nodes"] == ["dgx-1", "dgx-2"]


def test_without_any_report_it_says_what_to_do():
    world = World()
    for name in ("dgx-1", "dgx-2"):
        world.server.remove(NODE_REPORT, name)
    assert "no node has a NodeReport. Install agents first" in world.refusal()


def test_an_unchanged_cluster_has_nothing_to_change(world, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(world.printed("--part", "values"))
    (policy,) = yaml.safe_load_all(world.printed("--part", "policies"))
    world.server.put(NODE_POLICY, policy)
    words = ("--against", "cluster", "--against", str(values))
    assert world.printed(*words) == "Nothing to change.\n"
    world.node("dgx-2", "xe9680-like")
    assert len(world.printed(*words, code=1).splitlines()) == 1
    found = json.loads(world.printed(*words, "-o", "json", code=1))
    assert [one["nodes"] for one in found["differences"]] == [["dgx-2"]]


def test_recorded_machines_are_compared_with_files(world, tmp_path):
    file = tmp_path / "policies.yaml"
    file.write_text(world.printed(*TWO, "--part", "policies"))
    assert world.printed(*TWO, "--against", str(file)) == "Nothing to change.\n"
    printed = world.printed("--sysfs", "dgx-like", "--against", str(file), code=1)
    assert printed == "NodePolicy 4x100g-roce-8-gpus is for no node.\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("preset: fast\n", "preset"),
        ("preset: [1]\n", "preset"),
        ("presets: rails\n", "presets"),
        (
            f"kind: NodePolicy\nmetadata: {{name: a, annotations: {{{HARDWARE}: x}}}}\n",
            "NodePolicy a",
        ),
        ("a: [\n", "YAML"),
    ],
)
def test_a_file_that_is_no_installation_is_refused(world, tmp_path, text, words):
    file = tmp_path / "given.yaml"
    file.write_text(text)
    assert words in world.refusal("--against", str(file))
    assert "nothing.yaml" in world.refusal("--against", str(tmp_path / "nothing.yaml"))


def test_parts_are_of_the_yaml_alone(world):
    for words in (("-o", "json"), ("--against", "cluster")):
        assert world.run("--part", "values", *words).exit_code == 2
