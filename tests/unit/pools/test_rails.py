"""The agent remembers rails: a card that is away when it starts has its number when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.journal.codec import RAILS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.pools.rails import NodeRails
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.kit.nodes import hard_card
from tests.unit.agent.conftest import Node, card, serving
from tests.unit.agent.world import until

DATA = Path(__file__).parents[2] / "data"
CARDS = tuple(hard_card(0x10 + number, number) for number in range(3))


async def test_the_next_agent_numbers_as_the_one_before(recording):
    disk = FakeDisk()
    before = NodeRails(lambda: Journal(disk, RAILS))
    with pytest.raises(Unavailable, match="agent has just started"):
        before.number(CARDS[0].id)
    await before.see(CARDS, CARDS, (), idle=False)
    assert [before.number(one.id) for one in CARDS] == [0, 1, 2]
    disk.crash()
    after = NodeRails(lambda: Journal(disk, RAILS))
    await after.see(CARDS[2:], CARDS[2:], (), idle=True)
    assert after.number(CARDS[2].id) == 2
    await after.see((), CARDS, (), idle=True)
    assert after.number("0000:99:00.0") is None
    assert len(recording.of("rails numbered")) == 2, "once for each agent"


async def test_rails_without_cards_are_told_to_the_node_once(settings, recording):
    rails = NodeRails()
    await rails.see(CARDS, CARDS, (), idle=False)
    node = Node(CARDS[1].devices[0])
    node.survey = replace(node.survey, functions=(CARDS[1].function,))
    serve = serving(settings, node.kernel, rails=rails)
    async with FakeKubelet(settings.kubelet_dir), serve:
        await until(lambda: recording.of("rails without cards"))
        looks = node.looks
        node.change(CARDS[1].devices[0])
        await until(lambda: node.looks > looks)
    (line,) = recording.of("rails without cards")
    assert line["what"].startswith(
        "3 rails are numbered, and the node has no card for 0, 2 (0000:1"
    )


async def test_a_disk_that_fails_is_told_once_and_costs_no_number(recording):
    def failing():
        raise Unavailable("the disk is full")

    rails = NodeRails(failing)
    for _ in range(2):
        await rails.see(CARDS, CARDS, (), idle=False)
    assert rails.number(CARDS[1].id) == 1
    assert [line["why"] for line in recording.of("rails not saved")] == ["the disk is full"]


async def test_the_loop_numbers_the_cards_that_it_offers(settings, recording):
    node = Node(card(1))
    rails = NodeRails()
    serve = serving(settings, node.kernel, rails=rails)
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serve:
        await kubelet.until(lambda: kubelet.healthy("rdma/hca") == 1000)
        node.change(card(0), card(1))
        await until(lambda: len(recording.of("rails numbered")) == 2)
    assert recording.of("rails numbered")[1]["rails"] == "rxe0@eth0=1,rxe1@eth1=0"
    assert rails.number("rxe0@eth0") == 1
