"""The agent is killed after any act of a meta-plugin's call, and nothing stays behind."""

from itertools import count

import pytest

from kube_rdma.model.pools import Mode
from kube_rdma_testing.kernel.network import KilledError
from tests.unit.attach.delegate_world import DelegateWorld
from tests.unit.attach.network_world import card, share

GUID = {"runtimeConfig": {"infinibandGUID": "02:00:00:00:00:00:00:77"}}
PKEY = {"pkey": "0x8012"}
BLOCK = '[{"cniConf": {"name": "rail"}}]'

# A card, how it is given, and what the call says besides.
PLANS = {
    "macvlan": (card(0), Mode.SHARED_MULTI, {}),
    "soft": (card(0, soft=True), Mode.SHARED_MULTI, {}),
    "card": (card(0), Mode.EXCLUSIVE, {}),
    "function": (card(0, virtual=True), Mode.SRIOV, {}),
    "guid": (card(0, virtual=True, wide=True), Mode.SRIOV, GUID),
    "guid and pkey": (card(0, virtual=True, wide=True), Mode.SRIOV, PKEY | GUID),
    "ipoib": (card(0, wide=True), Mode.SHARED_MULTI, PKEY),
}
# In RDMA namespace mode exclusive no pod sees a card that it shares with others.
MOVED = [name for name, (_, mode, _) in PLANS.items() if mode is not Mode.SHARED_MULTI]
CASES = [(name, False) for name in PLANS] + [(name, True) for name in MOVED]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}{' alone' if case[1] else ''}")
def worlds(request, tmp_path):
    """A new node for each death, and what is asked of it."""
    name, alone = request.param
    one, mode, config = PLANS[name]
    folders = (tmp_path / f"w{number}" for number in count())

    def make():
        world = DelegateWorld(next(folders), [one], [share(one, mode)], {}, exclusive_rdma=alone)
        world.sandbox()
        world.ask("rail")
        return world

    return make, config


async def died(world, verb, at, config):
    """Whether the agent dies after this act of the call."""
    world.start(at)
    try:
        await world.meta(verb, 1, **config)
    except KilledError:
        return True
    return world.life.dead


async def test_an_add_that_was_killed_leaves_nothing(worlds):
    """Recovery takes back what no ADD has answered for; DEL then finds nothing to do."""
    make, config = worlds
    for at in count(1):
        world = make()
        killed = await died(world, "ADD", at, config)
        world.start()
        if killed:
            await world.calls.pipeline.recover()
        await world.meta("DEL", 1, **config)
        world.nothing_left(1)
        if not killed:
            break
    assert at > 8


async def test_a_del_that_was_killed_can_be_repeated(worlds):
    """The runtime does so, until it is answered."""
    make, config = worlds
    for at in count(1):
        world = make()
        await world.meta("ADD", 1, **config)
        killed = await died(world, "DEL", at, config)
        world.start()
        await world.meta("DEL", 1, **config)
        world.nothing_left(1)
        if not killed:
            break
    assert at > 4


async def test_a_del_that_was_killed_is_not_missed_when_the_sandbox_goes(worlds):
    """A meta-plugin that has lost its notes calls nobody again."""
    make, config = worlds
    for at in count(1):
        world = make()
        await world.meta("ADD", 1, **config)
        killed = await died(world, "DEL", at, config)
        world.start()
        world.end(1)
        await world.calls.pipeline.recover()
        world.nothing_left()
        if not killed:
            break
    assert at > 4
