"""A node as a user-mode kernel: its wires are the lab's, its cards those of the topology."""

import sys
from dataclasses import replace
from pathlib import Path

from kube_rdma_lab.build.parts import Parts
from kube_rdma_lab.network import commands, end
from kube_rdma_lab.topology import NodeKind, find
from kube_rdma_lab.user_mode_machine import command_line
from tests.unit.kube_rdma_lab.test_machine import PARTS as EMULATED

NODE = find("user-mode").nodes[0]
PARTS = replace(EMULATED, user_mode=Path("/p/linux"))
ARGV = command_line(NODE, PARTS, Path("/n/initrd"), Path("/n/cow"))


def option(name):
    """The value of an option, by the beginning of its word."""
    (value,) = [word.removeprefix(name) for word in ARGV if word.startswith(name)]
    return value


def test_each_interface_has_its_wire_of_the_lab_and_rails_are_opened_before_the_kernel_starts():
    assert ARGV[:5] == [sys.executable, "-P", "-m", "kube_rdma_lab.wires", "/p/linux"]
    ends = []
    for position in range(len(NODE.nics) + 1):
        words = dict(each.split("=", 1) for each in option(f"vec{position}:").split(","))
        ends.append(words.get("ifname") or words["fd"])
    assert ends == [end(NODE, position) for position in range(len(NODE.nics) + 1)]


def test_cards_are_those_of_the_topology_each_on_a_wire_of_its_own():
    words = option("soft_card.cards=").split(",")
    cards = [word.split("/") for word in words if not word.startswith("ghost")]
    assert [card[0] for card in cards] == ["card", "card", "sriov"]
    assert [card[2] for card in cards] == [NODE.mac(each) for each in (1, 2, 3)]
    wires = [card[3] for card in cards]
    assert wires == ["vec1", "vec2", "vec3"]
    macs = {
        dict(each.split("=") for each in option(f"{wire}:").split(","))["mac"] for wire in wires
    }
    assert not macs & {card[2] for card in cards}
    assert words.count("ghost/0") == words.count("ghost/1") == 4


def test_the_disks_that_nodes_share_are_never_written():
    assert option("ubd0rc=") == "/p/root"
    assert option("ubd1=") == "/n/cow,/p/images"


def test_a_parts_kernel_survives_the_way_to_the_supervisor_and_is_held():
    parts = Parts(Path("/p/bin"), None, PARTS)
    assert Parts.from_json(parts.to_json()) == parts
    assert Path("/p/linux") in parts.folders


def test_its_nodes_count_as_machines():
    topology = find("user-mode")
    assert topology.machines == topology.nodes
    assert topology.kinds == {NodeKind.USER_MODE}


def test_the_lab_s_own_stack_answers_nothing_on_a_node_s_end():
    """It has the control plane's address: its ARP would answer for that on each end."""
    lines = commands(find("user-mode"), {})
    for position in range(len(NODE.nics) + 1):
        (line,) = [each for each in lines if each.startswith(f"link set {end(NODE, position)} ")]
        assert "arp off" in line
        assert "addrgenmode none" in line
