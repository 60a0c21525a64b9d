"""`kube-rdma fabric`: pages, pictures, and what accepting writes."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.cli import output as out
from kube_rdma.cli.main import cli
from kube_rdma.fabric.cluster import expect
from kube_rdma.model.card import CardId
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.reports import ExpectedCable, NodeReportStatus
from kube_rdma.reports.node_report import NodeReports
from tests.kit.golden import assert_golden
from tests.kit.opener import opener_of
from tests.unit.fabric.world import FabricWorld, status

PAGES = Path(__file__).with_name("fabric.txt")
PICTURE = Path(__file__).parents[3] / "docs/cables.svg"


def run(world, *words, code=0):
    result = CliRunner().invoke(cli, ["fabric", *words], obj=opener_of(world.server))
    assert result.exit_code == code, result.output
    return result.stdout


def small():
    """Four nodes with two cards each, each on its leaf."""
    world = FabricWorld()
    for n in range(1, 5):
        world.report(f"node-{n}", f"leaf-1 Ethernet{n}/1", f"leaf-2 Ethernet{n}/1")
    return world


def large():
    """64 nodes with eight cards each, in two blocks of a leaf for each rail."""
    world = FabricWorld()
    for n in range(64):
        world.report(f"gpu-{n + 1}", *large_places(n))
    return world


def large_places(n):
    return [f"su{n // 32 + 1}-rail{rail} Ethernet{n % 32 + 1}/1" for rail in range(8)]


def spoiled():
    """The large one after acceptance: an exchange, a lost cable, a wrong leaf, a silent node."""
    world = large()
    run(world, "accept")
    places = {n: large_places(n) for n in range(64)}
    places[4][2], places[40][5] = places[40][5], places[4][2]
    places[17][7] = ""
    places[20][0] = "su2-rail0 Ethernet48/1"
    places[63] = [""] * 8
    for n in (4, 40, 17, 20, 63):
        world.report(f"gpu-{n + 1}", *places[n])
    return world


RUNS = {
    "4 nodes with 2 cards": (small, ["show"], 0),
    "4 nodes with 2 cards: the ports of one": (small, ["show", "node-2"], 0),
    "64 nodes with 8 cards": (large, ["show"], 0),
    "64 nodes with 8 cards: wrong cables": (spoiled, ["show"], 1),
    "64 nodes with 8 cards: the ports of a node with a wrong one": (spoiled, ["show", "gpu-5"], 1),
    "4 nodes with 2 cards: accepting": (small, ["accept", "--dry-run"], 0),
}


def test_the_pages_are_those_that_were_looked_at_and_fit_on_a_terminal(monkeypatch):
    monkeypatch.setattr(out, "PAGE_WIDTH", 80)
    pages = {name: run(made(), *words, code=code) for name, (made, words, code) in RUNS.items()}
    assert [line for page in pages.values() for line in page.splitlines() if len(line) > 80] == []
    assert_golden(PAGES, "\n".join(f"== {name}\n{page}" for name, page in pages.items()))


def test_the_picture_is_the_one_that_was_looked_at(tmp_path):
    run(spoiled(), "show", "--svg", str(tmp_path / "cables.svg"), code=1)
    assert_golden(PICTURE, (tmp_path / "cables.svg").read_text())


def test_what_was_accepted_is_no_fault_and_names_what_is_seen():
    world = small()
    run(world, "accept", "node-1")
    assert world.spec("node-1") == {
        "cabling": [
            {"card": "0000:00:00.0", "switch": "leaf-1", "switchPort": "Ethernet1/1"},
            {"card": "0000:01:00.0", "switch": "leaf-2", "switchPort": "Ethernet1/1"},
        ]
    }
    assert world.spec("node-2") is None
    assert run(world, "show").endswith("8 card ports of 8 hear a switch, 0 problems.\n")


def test_a_dry_run_writes_nothing():
    world = small()
    assert "8 cables of 4 nodes would be accepted." in run(world, "accept", "--dry-run")
    assert not any(world.spec(f"node-{n}") for n in range(1, 5))


async def test_an_agent_that_writes_its_report_leaves_what_was_accepted():
    """Its status, and the object after its Node was made anew."""
    world = small()
    cluster, name = Cluster(world.server.line(), program="kube-rdma"), "node-1"
    expected = (ExpectedCable(CardId("0000:00:00.0"), "leaf-9"),)
    await expect(cluster, name, expected)
    reports = NodeReports(cluster, name)
    made = msgspec.convert(status("leaf-1 1"), NodeReportStatus)
    seen = await reports.write(NodeState(name, uid="another"), None, made)
    assert (seen.spec.cabling, seen.status) == (expected, made)
    await expect(cluster, name, ())
    stored = await cluster.get(NODE_REPORT, name)
    assert (stored.spec.cabling, stored.status) == ((), made)


def test_what_somebody_else_wrote_is_replaced_by_force_alone():
    world = small()
    world.expect("node-1", "leaf-7 swp1", "leaf-8 swp1")
    refused = CliRunner().invoke(cli, ["fabric", "accept"], obj=opener_of(world.server))
    assert isinstance(refused.exception, Refused)
    assert "spec.cabling" in str(refused.exception)
    assert world.spec("node-1")["cabling"][0]["switch"] == "leaf-7"
    run(world, "accept", "--force")
    assert world.spec("node-1")["cabling"][0]["switch"] == "leaf-1"


def test_a_silent_port_is_not_expected_and_said():
    world = small()
    world.report("node-1", "", "leaf-2 Ethernet1/1")
    page = run(world, "accept")
    assert "? node-1 hears no switch on mlx5_0." in page
    assert len(world.spec("node-1")["cabling"]) == 1
    world.report("node-1", "", "")
    run(world, "accept")  # a node that hears nothing keeps what was accepted
    assert len(world.spec("node-1")["cabling"]) == 1


def test_a_node_without_a_report_is_refused_by_name():
    refused = CliRunner().invoke(cli, ["fabric", "show", "nod-1"], obj=opener_of(small().server))
    assert str(refused.exception) == (
        "node nod-1 has no NodeReport that can be read. Name one of kubectl get nodereports; "
        "agents of role node write them."
    )


def test_why_a_port_is_silent_stands_beside_it():
    world = small()
    world.report("node-1", "", "leaf-2 Ethernet1/1")
    assert "?  node-1  mlx5_0  no frame" in run(world, "show", "node-1")


def test_keys_for_programs():
    world = spoiled()
    made = json.loads(run(world, "show", "-o", "json", code=1))
    (node,) = [one for one in made["nodes"] if one["node"] == "gpu-5"]
    assert node["ports"][2] == {
        "card": "0000:02:00.0",
        "number": 1,
        "name": "mlx5_2",
        "at": {"switch": "su2-rail5", "port": "Ethernet9/1"},
        "unheard": "",
    }
    assert node["expected"][2] == {
        "card": "0000:02:00.0",
        "switch": "su1-rail2",
        "port": 1,
        "switchPort": "Ethernet5/1",
    }
    fault = made["faults"][0]
    assert fault.keys() == {"kind", "cables", "sentence", "nextStep", "advice"}
    assert fault["kind"] == "CablesSwapped"
    assert fault["cables"][0] == {
        "node": "gpu-5",
        "card": "mlx5_2",
        "seen": {"switch": "su2-rail5", "port": "Ethernet9/1"},
        "expected": {"switch": "su1-rail2", "port": "Ethernet5/1"},
    }


@pytest.mark.parametrize("words", [["show"], ["accept"]])
def test_a_cluster_without_reports_says_so(words):
    assert len(run(FabricWorld(), *words).splitlines()) == 1


def test_names_from_the_wire_reach_no_terminal_and_no_picture(tmp_path):
    world = small()
    world.report("node-1", "\x1b[2J<script>\u202e swp1", "leaf-2 Ethernet1/1")
    for words in (["show"], ["show", "node-1"]):
        assert all(line.isprintable() for line in run(world, *words).splitlines())
    run(world, "show", "--svg", str(tmp_path / "a.svg"))
    picture = (tmp_path / "a.svg").read_text()
    assert "<script>" not in picture
    assert all(line.isprintable() for line in picture.splitlines())
