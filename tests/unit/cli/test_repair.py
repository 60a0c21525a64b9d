"""`kube-rdma repair`: what was done to nodes, would be done, and why not; pauses."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_rdma.cli.main import cli
from kube_rdma.model.repair import PAUSED
from tests.kit.golden import assert_golden
from tests.kit.opener import opener_of
from tests.unit.ipam.conftest import until
from tests.unit.repair.world import RepairWorld

PAGES = Path(__file__).with_name("repair.txt")


def run(world, *words, code=0):
    result = CliRunner().invoke(cli, ["repair", *words], obj=opener_of(world.server))
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def world():
    """Three bad nodes and a budget of two, a dry run, a bad card, a policy not understood."""
    made = RepairWorld()
    made.nodes(4)
    made.report("node-0", degraded="symbol errors rise")
    made.devices("node-0")
    made.report("node-1", healthy=7)
    made.report("node-2", healthy=0)
    made.report("node-3", healthy=6)
    made.policy(budget={"nodes": 2})
    made.policy("cables", when={"slow": True}, enforce=False, taint="NoExecute")
    made.policy("typo", when={"slow": True}, budget={"nodes": 0})
    made.policy("links", when={"errors": True}, deviceTaint="NoExecute")
    made.measured("node-1")

    async def judged():
        async with made.leading():
            await until(lambda: len(made.states()) == 3 and len(made.status()["history"]) == 2)
            await until(lambda: made.states("cables") and made.status("typo"))
            await until(lambda: made.status("links").get("history"))

    asyncio.run(judged())
    return made


def test_the_pages(world):
    pages = [f"$ kube-rdma repair {word}\n{run(world, word)}" for word in ("show", "history")]
    assert_golden(PAGES, "\n".join(pages))
    document = json.loads(run(world, "show", "cards", "-o", "json"))
    assert document[0]["status"]["result"] == "2 tainted, 1 over the budget"


def test_an_unknown_policy_is_refused_with_the_known_ones(world):
    for word in ("show", "history", "pause", "resume"):
        words = ["repair", word, "card"]
        result = CliRunner().invoke(cli, words, obj=opener_of(world.server))
        assert "no RepairPolicy card. Name one of these: cables, cards, links, typo" in str(
            result.exception
        )


def test_policies_are_paused_with_a_reason_and_go_on(world):
    assert run(world, "pause", "cards", "--why", "switch\x1b work") == (
        "RepairPolicy cards is paused.\n"
    )
    assert PAUSED in world.found("repairpolicies", "cards")["metadata"]["annotations"]
    assert "cards: paused" in run(world, "show")
    assert "cards goes on" in run(world, "resume")
    assert PAUSED not in world.found("repairpolicies", "cards")["metadata"].get("annotations", {})


def test_a_cluster_without_policies_says_what_to_do():
    empty = RepairWorld()
    assert "docs/repair.md" in run(empty, "show")
    assert "Nothing was done" in run(empty, "history")
    assert run(empty, "pause") == "There is no RepairPolicy.\n"
