"""Topologies that people write: what they may say, and how mistakes are told."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma_lab.cli import lab as command
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import (
    TOPOLOGIES,
    GpuGhost,
    NicKind,
    RdmaNetns,
    TopologyManager,
    find,
)
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
  leaves: [leaf-a, ""]
- {}
release: 1.37
feature_gates: {GenericWorkload: true, DRAPartitionableDevices: false}
api_groups: {scheduling.k8s.io/v1beta1: true, api/alpha: false}
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
    assert (first.leaf(1), first.leaf(2), first.leaf(3)) == ("leaf-a", "", "")
    assert (second.name, second.nics) == ("node-2", ())
    assert made.release is Release.NEXT
    assert made.feature_gates == {"GenericWorkload": True, "DRAPartitionableDevices": False}
    assert made.api_groups == {"scheduling.k8s.io/v1beta1": True, "api/alpha": False}


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


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_of_the_lab_survives_it_too_with_another_interval_of_lldp(name):
    made = choose(name, None, lldp_seconds=1)
    assert find(made.reference) == made
    assert find(name).reference == name


NIC = "nics: [{name: ens2f0, rail: 0}]"
SEVENTEEN = ", ".join(f"leaf-{number}" for number in range(17))
WRONG = {
    f"nodes: [{{{NIC}, leaves: [a, b]}}]": "leaves: the node has 1 cards and leaves for 2",
    f"nodes: [{{{NIC}, leaves: [Leaf]}}]": r'leaves\[0\]: "Leaf" is not a value .* such as leaf-a',
    f"nodes: [{{{NIC}, leaves: [leaf-of-a-long-name]}}]": r"leaves\[0\]: .* 1 to 12 small letters",
    f"nodes: [{{native: true, leaves: [{SEVENTEEN}]}}]": "nodes: the nodes have 17 .* Keep 16",
    "nodes: [{}]\nrelease: older": "release: a machine's containerd is of the newest release",
    "nodes: []\nrelease: 1.38": r'release: "1.38" is not a value .* newest, older, 1.34, 1.37',
    "nodes: []\nfeature_gates: {genericWorkload: true}": '"genericWorkload" is not a value',
    "nodes: []\nfeature_gates: {GenericWorkload: Yes}": '"Yes" is not a value .* true or false',
    "nodes: []\nfeature_gates: [GenericWorkload]": "Allowed: up to 64 feature gates",
    "nodes: []\napi_groups: {--etcd: true}": r'"--etcd" is not a value .* resource.k8s.io/v1alpha3',
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_told_with_its_place_and_what_is_allowed(text):
    with pytest.raises(Refused, match=rf"x.yaml:\d+:\d+: .*{WRONG[text]}"):
        parse(text.encode(), "x.yaml")


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
