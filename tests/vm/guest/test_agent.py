"""The agent as a process on a real kernel, its kubelet a fake: cards go and come, pods are told."""

from __future__ import annotations

import asyncio

import pytest

from kube_rdma.model.device import PortState
from kube_rdma_testing.kubelet.kubelet import FakeKubelet

from .world import PATIENCE, agent, port_of, run, until

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

HCA = "rdma/hca"
SHARES = 1000


def make(link, card):
    """A link whose port is ACTIVE."""
    link("rxe0", card)
    until(lambda: port_of("rxe0").state is PortState.ACTIVE)


@pytest.fixture
def node(tmp_path):
    """A configuration and the kubelet's folder; `log` is what the agent writes."""
    (tmp_path / "config.json").write_text('{"mode": "hca"}')
    (tmp_path / "kubelet" / "device-plugins").mkdir(parents=True)
    return tmp_path


async def test_a_card_whose_device_goes_has_no_healthy_share_until_it_is_back(cards, link, node):
    """Its function is there all the time."""
    make(link, cards[0])
    async with FakeKubelet(node / "kubelet" / "device-plugins") as kubelet, agent(node):
        await kubelet.until(lambda: kubelet.healthy(HCA) == SHARES, PATIENCE)
        run("rdma", "link", "delete", "rxe0")
        await kubelet.until(lambda: kubelet.healthy(HCA) == 0, PATIENCE)
        make(link, cards[0])
        await kubelet.until(lambda: kubelet.healthy(HCA) == SHARES, PATIENCE)
    log = (node / "log").read_text()
    assert log.index("card unhealthy") < log.index("healthy=0") < log.index("card healthy again")


async def test_a_container_gets_the_device_nodes_of_the_real_card(cards, link, node):
    make(link, cards[0])
    async with FakeKubelet(node / "kubelet" / "device-plugins") as kubelet, agent(node):
        await kubelet.until(lambda: kubelet.healthy(HCA) == SHARES, PATIENCE)
        answer = await kubelet.allocate(HCA, 1)
    given = {spec.host_path for spec in answer.devices}
    assert given == {f"/dev/infiniband/{name}" for name in ("rdma_cm", "umad0", "uverbs0")}


async def test_a_second_card_joins_the_pool_by_its_uevent(cards, link, node):
    make(link, cards[0])
    async with FakeKubelet(node / "kubelet" / "device-plugins") as kubelet, agent(node):
        await kubelet.until(lambda: kubelet.healthy(HCA) == SHARES, PATIENCE)
        link("rxe1", cards[1])
        log = node / "log"
        async with asyncio.timeout(PATIENCE):
            while "card=rxe1" not in log.read_text():  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.05)
        answer = await kubelet.allocate(HCA, 1)
    given = {spec.host_path for spec in answer.devices}
    assert {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"} <= given
