"""Topologies that people write: what they may say, and how mistakes are told."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma_lab.cli import lab as command
from kube_rdma_lab.topology import GpuGhost, NicKind, RdmaNetns, TopologyManager, find
from kube_rdma_lab.topology_file import choose, parse

WHOLE = b"""\
summary: one of everything
nodes:
- nics:
  - {name: ens2f0, rail: 0}
  - {name: ens4f0, rail: 3, numa_node: 1, kind: igb, soft_roce: false, vfs: 2}
  gpus:
  - {numa_node: 1, switch: 1, count: 2}
  rdma_netns: exclusive
  topology_manager: restricted
  memory_mib: 4096
- {}
"""


def test_a_file_says_everything_that_a_topology_has():
    made = parse(WHOLE, "some/where/mine.yaml")
    assert (made.name, made.summary, made.rails) == ("mine.yaml", "one of everything", (0, 3))
    first, second = made.nodes
    assert [nic.kind for nic in first.nics] == [NicKind.VIRTIO, NicKind.IGB]
    assert first.nics[1].vfs == 2
    assert first.gpus == (GpuGhost(1, 1), GpuGhost(1, 1))
    assert first.rdma_netns is RdmaNetns.EXCLUSIVE
    assert first.topology_manager is TopologyManager.RESTRICTED
    assert first.memory_mib == 4096
    assert (second.name, second.nics) == ("node-2", ())


def test_a_file_may_mix_all_kinds_of_nodes(tmp_path):
    """A tree is named, or lies at a path relative to the file."""
    (tmp_path / "recorded/class").mkdir(parents=True)
    natives = b"{native: true, tree: efa}, {native: true, tree: ./recorded}"
    text = b"nodes: [{}, {user_mode: true}, %b]" % natives
    made = parse(text, f"{tmp_path}/mixed.yaml")
    assert [node.kind for node in made.nodes] == ["machine", "user-mode", "native", "native"]
    assert made.nodes[2].tree == "efa"
    assert Path(made.nodes[3].tree) == tmp_path / "recorded"
    assert find(made.reference) == made


def test_a_topology_survives_the_way_to_the_supervisor_even_under_a_known_name():
    made = parse(WHOLE, "two-nodes.yaml")
    assert find(made.reference) == made
    assert find(made.with_nodes(3).reference) == made.with_nodes(3)


NICS = "nodes:\n- nics:\n  - "


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", ["t.yaml:1:1: a topology is a document with fields. Begin with `nodes:`, "]),
        ("[]", ["t.yaml:1:1: a topology is a document with fields. Begin with `nodes:`, "]),
        ("{}", ["t.yaml:1:1: nodes: the field is missing. Add nodes: a list of up to 32"]),
        ("nodes: 3", ["t.yaml:1:8: nodes: 3 is not a value of this field. Allowed: a list of"]),
        ("nodes: [{}, {}, {}, {}, {}]", ["t.yaml:1:25: nodes[4]: the lab has 4 machines already"]),
        (
            f"nodes: [{'{native: true}, ' * 33}]",
            ["t.yaml:1:8: nodes: ", "a list of up to 32 nodes"],
        ),
        (
            "nodes: [x]",
            ['t.yaml:1:9: nodes[0]: "x" is not a value', "out of native, user_mode"],
        ),
        (
            "nodes:\n- nisc: []",
            ["t.yaml:2:3: nodes[0].nisc: there is no such field. Did you mean nics? Known: native"],
        ),
        (
            f"{NICS}{{name: ens2f0, rail: 8, kind: mlx5}}",
            [
                "nodes[0].nics[0].rail: 8 is not a value of this field. Allowed: a whole number f",
                't.yaml:3:35: nodes[0].nics[0].kind: "mlx5" is not a value',
                "Allowed: virtio, igb",
            ],
        ),
        (
            "nodes:\n- {native: true, memory_mib: 2048, nics: []}",
            [
                "t.yaml:2:42: nodes[0].nics: a native node has no nics. Remove it, or leave native",
                "t.yaml:2:30: nodes[0].memory_mib: a native node has no memory_mib. Remove it",
            ],
        ),
        (
            "nodes:\n- {user_mode: true, rdma_at_boot: false, gpus: [{switch: 1}]}",
            [
                "t.yaml:2:35: nodes[0].rdma_at_boot: a user-mode kernel has RDMA from the be",
                "nodes[0].gpus[0].switch: a user-mode kernel has no switches",
            ],
        ),
        (
            "nodes: [{user_mode: true, topology_manager: restricted}]",
            ["nodes[0].topology_manager: a user-mode kernel has no NUMA nodes, without which"],
        ),
        (
            "nodes: [{native: true, user_mode: true}]",
            ["nodes[0].user_mode: a native node has no user_mode. Remove it"],
        ),
        ("nodes: [{tree: efa}]", ["nodes[0].tree: a machine has no recorded tree. Write native"]),
        (
            "nodes: [{native: true, tree: dgx}]",
            ["t.yaml:1:30: nodes[0].tree: there is no recorded tree 'dgx'. Choose one of bnxt"],
        ),
        (f"{NICS}{{name: Ens2f0, rail: 0}}", ["Allowed: 1 to 12 small letters and digits"]),
        (f"{NICS}{{rail: yes}}", ["name: the field is missing", '"yes" is not a value']),
        (f"{NICS}{{name: eth0, rail: 0}}", ["the node has an interface eth0 already"]),
        (f"{NICS}{{name: a, rail: 0, vfs: 1}}", ["a virtio card has no virtual functions. Write"]),
        (
            f"{NICS}{{name: a, rail: 0, kind: igb, vfs: 2}}\n  - {{name: av1, rail: 0}}",
            ["t.yaml:4:12: ", "an interface av1 already", "another card of the node is on rail 0"],
        ),
        ("nodes: [{gpus: [{count: 5}, {count: 4}]}]", ["the node has 9 ghosts. Keep 8 of them"]),
        (
            "nodes: [{gpus: [{switch: 1}, {switch: 1, numa_node: 1}]}]",
            ["gpus[1].switch: switch 1 is on NUMA node 0. Name another switch"],
        ),
    ],
)
def test_a_mistake_is_told_with_its_place_what_is_allowed_and_what_to_do(text, sentences):
    with pytest.raises(Refused) as refused:
        parse(text.encode(), "t.yaml")
    for sentence in sentences:
        assert sentence in str(refused.value)


def test_a_file_that_is_not_there_is_told_with_the_topologies_that_are(tmp_path):
    with pytest.raises(Refused, match=r"cannot be read .* or one of two-nodes, "):
        choose(f"{tmp_path}/none.yaml", None)


def test_the_command_takes_a_file_and_refuses_its_mistakes_before_it_builds_anything(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("nodes: []\nnode: 1\n")
    outcome = CliRunner().invoke(command, ["up", "--name", "none", "--topology", str(path)])
    assert isinstance(outcome.exception, Refused)
    assert f"{path}:2:1: node: there is no such field. Did you mean nodes?" in str(
        outcome.exception
    )


@pytest.mark.parametrize("count", [0, 5, -1])
def test_a_count_that_is_not_offered_is_refused_in_a_sentence(count):
    with pytest.raises(Refused, match=f"of {count} nodes is not offered. Choose --nodes from 1"):
        choose("two-nodes", count)


def test_json_is_fine_too():
    text = json.dumps({"nodes": [{"nics": [{"name": "ens2f0", "rail": 1}]}]})
    assert parse(text.encode(), "x.json").rails == (1,)
