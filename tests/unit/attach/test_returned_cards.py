"""A card comes back and a pod's interface does not: the pod is told, and nobody else is."""

import asyncio
from contextlib import contextmanager, suppress

import pytest

from kube_base.errors import Unavailable
from kube_rdma.attach.repair import ReturnedCards
from kube_rdma.model.pools import Mode
from tests.unit.agent.world import until
from tests.unit.attach.network_world import POD, World, card, config, share

CARD, OTHER, FUNCTION = card(0), card(1), card(0, virtual=True)
KINDS = {
    "a macvlan on it": ("macvlan", Mode.SHARED, CARD),
    "the whole card": ("kube-rdma", Mode.EXCLUSIVE, CARD),
    "a virtual function": ("kube-rdma", Mode.SRIOV, FUNCTION),
}


class Returns:
    """The pods of a world, and what one of them was told after cards came back."""

    def __init__(self, world):
        self.world, self.told, self.looks, self.failing = world, [], 0, None
        self.cards = ReturnedCards(
            lambda: world.attachments.by_key,
            self._lost,
            lambda *words: self.told.append(words),
            self._opened,
        )

    async def after(self, of):
        """The card comes back; all that stands on it is looked at."""
        task = asyncio.create_task(self.cards.run())
        looks = self.looks
        self.cards.returned(of.id)
        await until(lambda: self.looks > looks)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _lost(self, key, namespace):
        try:
            if self.failing:
                raise self.failing
            return await self.world.calls.pipeline.lost(key, namespace)
        finally:
            self.looks += 1

    @contextmanager
    def _opened(self, path):
        assert path == str(self.world.folder / "netns-1")
        yield 1


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
async def returns(request, tmp_path):
    kind, mode, of = request.param
    world = World(tmp_path, [of, OTHER], [share(of, mode)], {"default/net": config(kind)})
    world.ask("net")
    world.sandbox()
    await world.add(1)
    return Returns(world), of


def lose(world):
    """The interface goes, as the kernel has it go with what it stands on."""
    (link,) = (one for one in world.kernel.links if one.name == "net1")
    world.kernel.links.remove(link)


async def test_the_pod_is_told_what_went_and_what_to_do(returns):
    here, of = returns
    lose(here.world)
    await here.after(of)
    ((pod, reason, note),) = here.told
    assert (pod, reason) == (POD, "NetworksLost")
    assert note == (
        "net1 (default/net) went with the card, which came back without: delete the pod."
    )


async def test_a_pod_that_has_what_it_had_is_left_alone(returns):
    """A cable was out: nothing went."""
    here, of = returns
    await here.after(of)
    assert not here.told


async def test_a_card_of_other_pods_is_nobody_s_news(returns):
    """The one that lost its interface hears of its own card only."""
    here, of = returns
    lose(here.world)
    here.cards.returned(OTHER.id)
    await here.after(of)
    assert here.looks == len(here.told) == 1


async def test_what_cannot_be_looked_at_ends_nothing(returns):
    """The pod may end meanwhile; the next return is looked at as the first."""
    here, of = returns
    lose(here.world)
    here.failing = Unavailable("The namespace is gone.")
    await here.after(of)
    assert not here.told
    here.failing = None
    await here.after(of)
    assert here.told
