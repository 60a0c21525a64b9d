"""Cables to leaf switches: how they are counted and moved, and what LLDP says of them."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma_lab import cables, lldp, network
from kube_rdma_lab.cli import lab as command
from kube_rdma_lab.topology import NodeKind, NodeSpec, Topology, find
from tests.kit.heard_lldp import neighbour, tlvs

FOUR = find("user-mode-leaves")
CABLES = cables.of(FOUR, {})


def at(plugged, node, card):
    """Where a card's cable is, as people write it."""
    found = next(cable for cable in plugged if (cable.node, cable.card) == (node, card))
    return f"{found.leaf}/{found.port}" if found.leaf else "out"


def move(plugged, node, card, to):
    return cables.moved(plugged, FOUR.leaves, node, card, to)


def test_ports_of_a_leaf_are_counted_over_nodes_and_cards():
    assert [(each.node, each.card, each.leaf, each.port_name) for each in CABLES] == [
        ("node-1", "ens2f0", "leaf-a", "Ethernet1/1"),
        ("node-1", "ens3f0", "leaf-a", "Ethernet1/2"),
        ("node-2", "ens2f0", "leaf-a", "Ethernet1/3"),
        ("node-2", "ens3f0", "leaf-a", "Ethernet1/4"),
        ("node-3", "ens2f0", "leaf-b", "Ethernet1/1"),
        ("node-3", "ens3f0", "leaf-b", "Ethernet1/2"),
        ("node-4", "ens2f0", "leaf-b", "Ethernet1/3"),
        ("node-4", "ens3f0", "leaf-b", "Ethernet1/4"),
    ]


def native(*leaves):
    node = NodeSpec(1, kind=NodeKind.NATIVE, tree="dgx-like", leaves=leaves)
    return Topology("x.yaml", "", (node,))


def test_cards_of_a_tree_have_leaves_in_their_order_and_may_have_none():
    shown = {"node-1": ("ib0", "ib1", "ib2")}
    made = cables.of(native("left", "", "right"), shown)
    assert [(each.card, each.interface, each.rail, each.leaf) for each in made] == [
        ("ib0", "n1p1", 0, "left"),
        ("ib2", "n1p3", 2, "right"),
    ]
    with pytest.raises(Refused, match="node-1 has 3 cards and leaves for 4"):
        cables.of(native("a", "b", "c", "d"), shown)


def test_a_leaf_with_more_cards_than_ports_is_refused_and_one_more_cable_too():
    names = tuple(f"ib{number}" for number in range(64))
    nodes = [replace(native(*["a"] * 64).nodes[0], index=index) for index in range(1, 5)]
    shown = {node.name: names for node in nodes}
    with pytest.raises(Refused, match=r"all 255 ports of a have a cable\. Choose another leaf"):
        cables.of(Topology("x.yaml", "", tuple(nodes)), shown)
    shown["node-4"], nodes[3] = names[:63], replace(nodes[3], leaves=("a",) * 63)
    full = cables.of(Topology("x.yaml", "", tuple(nodes)), shown)
    lldp.frame(full[-1], 5)
    with pytest.raises(Refused, match="all 255 ports of a have a cable"):
        cables.moved(full, ("a",), "node-1", "ib0", "a")


def test_a_topology_without_leaves_has_the_bridges_of_before_and_no_cables():
    two = find("two-nodes")
    assert cables.of(two, {}) == ()
    masters = {line.split()[4] for line in network.commands(two, {}) if " master " in line}
    assert masters == {"cluster", "rail0", "rail1", "rail2"}


def test_all_names_of_interfaces_differ_and_fit_into_what_the_kernel_takes():
    long = replace(FOUR, nodes=tuple(replace(n, leaves=("a" * 12, "b" * 12)) for n in FOUR.nodes))
    lines = [line.split() for line in network.commands(long, {}) if line.startswith("link add")]
    names = [word for line in lines for word in (line[2], *line[7:8])]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 15


places = st.sampled_from(["out", "leaf-a", "leaf-b", *(f"leaf-a/{n}" for n in range(1, 7))])
cards = st.sampled_from([(each.node, each.card) for each in CABLES])


@given(st.lists(st.tuples(cards, places), max_size=12))
def test_whatever_is_moved_a_port_has_one_cable_and_no_cable_is_lost(moves):
    plugged = CABLES
    for (node, card), to in moves:
        before, plugged = plugged, move(plugged, node, card, to)
        reached = at(plugged, node, card)
        assert reached == to or ("/" not in to and reached.startswith(f"{to}/"))
        stayed = [new for old, new in zip(before, plugged, strict=True) if old == new]
        assert len(stayed) >= len(CABLES) - 2
    used = [each.place for each in plugged if each.leaf]
    assert len(set(used)) == len(used)
    assert [each.interface for each in plugged] == [each.interface for each in CABLES]


@given(cards, cards)
def test_two_cables_change_places_and_the_same_once_more_is_as_before(first, second):
    swapped = move(CABLES, *first, at(CABLES, *second))
    assert at(swapped, *first) == at(CABLES, *second)
    assert at(swapped, *second) == at(CABLES, *first)
    assert move(swapped, *first, at(CABLES, *first)) == CABLES


def test_a_leaf_alone_is_its_first_free_port_and_a_cable_pulled_out_can_come_back():
    assert at(move(CABLES, "node-1", "ens2f0", "leaf-b"), "node-1", "ens2f0") == "leaf-b/5"
    pulled = move(CABLES, "node-1", "ens2f0", "out")
    assert at(pulled, "node-1", "ens2f0") == "out"
    assert at(move(pulled, "node-3", "ens2f0", "leaf-a"), "node-3", "ens2f0") == "leaf-a/1"
    pushed_out = move(pulled, "node-1", "ens2f0", "leaf-b/1")
    assert at(pushed_out, "node-3", "ens2f0") == "out"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("node-9", "ens2f0", "leaf-a"), "card ens2f0 of node-9 has no cable .* node-1 ens2f0, "),
        (("node-1", "eth0", "leaf-a"), "card eth0 of node-1 has no cable"),
        (("node-1", "ens2f0", "leaf-c"), "no leaf switch 'leaf-c'. Choose leaf-a, leaf-b or out"),
        (("node-1", "ens2f0", "leaf-a/0"), "leaf-a has no port '0'. Choose leaf-a/1 to leaf-a/255"),
        (("node-1", "ens2f0", "leaf-a/x"), "leaf-a has no port 'x'"),
        (("node-1", "ens2f0", "leaf-a/256"), "leaf-a has no port '256'"),
        (("node-1", "ens2f0", ""), "no leaf switch ''"),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(words, sentence):
    with pytest.raises(Refused, match=sentence):
        move(CABLES, *words)


def test_the_command_says_what_it_takes_before_it_looks_for_a_lab():
    words = ["cable", "--name", "none", "node-1", "ens2f0"]
    assert "Name a node, its card and where" in CliRunner().invoke(command, words).output
    outcome = CliRunner().invoke(command, [*words, "leaf-b"])
    assert "no lab 'none' is running" in str(outcome.exception)


def test_bridges_of_a_changed_rail_forget_where_cards_are_and_others_do_not():
    after = move(CABLES, "node-1", "ens3f0", "leaf-b")
    assert cables.commands(CABLES, after) == (
        "link set n1p2 master leaf-b-r1 up",
        "link set leaf-a-r1 type bridge fdb_flush",
        "link set leaf-b-r1 type bridge fdb_flush",
        "link set rail1 type bridge fdb_flush",
    )
    assert cables.commands(CABLES, CABLES) == ()


def test_cables_are_read_as_they_were_written(tmp_path):
    assert cables.read(tmp_path) == ()
    cables.write(tmp_path, CABLES)
    assert cables.read(tmp_path) == CABLES


@given(st.from_regex(r"[a-z][a-z0-9-]{0,11}", fullmatch=True), st.integers(1, 255))
def test_a_frame_names_leaf_and_port_and_is_as_long_as_ethernet_wants(leaf, port):
    data = lldp.frame(cables.Cable("node-1", "ens2f0", "n1p1", 0, leaf, port), 121)
    assert data[:6] == bytes.fromhex("0180c200000e")
    assert data[12:14] == b"\x88\xcc"
    assert len(data) >= 60
    said = tlvs(data)
    assert list(said) == [1, 2, 3, 5]
    assert said[1] == b"\x04" + lldp.mac(leaf)
    assert said[2] == f"\x05Ethernet1/{port}".encode()
    assert (said[3], said[5]) == (b"\0\x79", leaf.encode())
    assert data[6] & 3 == 2, "not of one station, or not administered locally"


# In a network namespace of its own: the bridges of FOUR, the program, and an ear for each card.
SCRIPT = """
import asyncio, json, socket, subprocess, sys
from pathlib import Path
from kube_rdma_lab import cables, lldp, network
from kube_rdma_lab.topology import find

four, home = find("user-mode-leaves"), Path(sys.argv[1])
asyncio.run(network.build(four, {}))
before = cables.of(four, {})
cables.write(home, before)

def ear(cable, protocol):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    opened.bind((cable.interface.replace("p", "e"), protocol))
    opened.settimeout(30)
    return opened

ears = [ear(cable, lldp.ETHERTYPE) for cable in before]
argv = [sys.executable, "-P", "-m", "kube_rdma_lab.lldp", str(home), "1"]
program = subprocess.Popen(argv)

def hear():
    print(json.dumps([each.recv(2000).hex() for each in ears]))

hear()
after = cables.moved(before, four.leaves, "node-1", "ens2f0", "leaf-b/3")
lines = "".join(f"{line}\\n" for line in cables.commands(before, after))
subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)
cables.write(home, after)
for each, cable in zip(ears, after):  # frames of before the change come first
    while cable.leaf.encode() not in each.recv(2000):
        pass
hear()
program.terminate()
program.wait()
last = []
for each in ears:
    each.setblocking(False)
    frames = []
    try:
        while frame := each.recv(2000):
            frames.append(frame)
    except BlockingIOError:
        last.append(frames[-1].hex())
print(json.dumps(last))
# From rail 1 of node-1 to all cards of that rail, and to no other.
cards = [ear(cable, 0x88B5) for cable in before]  # an EtherType for experiments
sender = next(index for index, cable in enumerate(before) if cable.interface == "n1p2")
cards[sender].send(bytes.fromhex("ffffffffffff020000000009") + b"\\x88\\xb5" + bytes(46))
for index, cable in enumerate(before):
    if cable.rail == 1 and index != sender:
        cards[index].recv(2000)
for index, cable in enumerate(before):
    if cable.rail == 0:
        cards[index].setblocking(False)
        try:
            print(cable, cards[index].recv(2000))
        except BlockingIOError:
            pass
"""


def in_new_network(*words):
    argv = ["unshare", "--user", "--map-root-user", "--net", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.skipif(
    not shutil.which("unshare")
    or in_new_network("ip", "link", "add", "x0", "type", "bridge").returncode,
    reason="no network namespaces with bridges here",
)
def test_each_card_hears_its_own_port_and_rails_reach_over_leaves(tmp_path):
    """A bridge passes no LLDP on, so each hears one port, and the new one once it was moved."""
    done = in_new_network(sys.executable, "-c", SCRIPT, str(tmp_path))
    assert done.stderr == ""
    lines = map(json.loads, done.stdout.splitlines())
    heard = [[neighbour(bytes.fromhex(frame)) for frame in line] for line in lines]
    moved = move(CABLES, "node-1", "ens2f0", "leaf-b/3")
    assert heard == [
        [(each.leaf, each.port_name, ttl) for each in plugged]
        for plugged, ttl in ((CABLES, 5), (moved, 5), (moved, 0))
    ]
