"""A card that another program moved is given to no pod; a card of our own pods is as it was."""

import pytest

from kube_base.frozen import replace
from kube_rdma.model.card import CardId
from kube_rdma.pools.rules.absence import DEVICE_GONE, MOVED
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import VKE, World, hard_card, position, until

CARDS = [hard_card(number) for number in range(4)]
FIRST, SECOND = (f"{position(number).pci}-0" for number in (0, 1))


class AbsenceWorld(World):
    """A node from which other programs take cards: their interfaces alone, or RDMA devices too."""

    def __init__(self, folder):
        super().__init__(folder, *CARDS)
        self.whole = self.survey.functions

    def leave(self, *numbers, visible=True):
        """The cards of these numbers are away now, no other; are their RDMA devices `visible`?"""
        functions, devices = list(self.whole), list(CARDS)
        for number in sorted(numbers, reverse=True):
            functions[number] = replace(functions[number], netdevs=())
            (port,) = CARDS[number].ports
            devices[number] = replace(CARDS[number], ports=(replace(port, netdev=None),))
            if not visible:
                del devices[number]
        self.functions(*functions)
        self.change(*devices)

    def lose(self, *numbers, driver="mlx5_core"):
        """Cards of these numbers show no RDMA device; their functions are there, with `driver`."""
        functions = [
            replace(one, driver=driver) if number in numbers else one
            for number, one in enumerate(self.whole)
        ]
        self.functions(*functions)
        self.change(*(card for number, card in enumerate(CARDS) if number not in numbers))

    def shares(self):
        return self.kubelet.devices.get(VKE, {})

    async def all_good(self):
        await self.kubelet.until(lambda: list(self.shares().values()) == [True] * 4)


@pytest.fixture
def world(tmp_path_factory, recording):
    return AbsenceWorld(tmp_path_factory.mktemp("w"))


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("visible", [True, False])
async def test_a_card_that_nobody_of_ours_has_is_unhealthy_until_it_is_back(world, mode, visible):
    """In RDMA namespace mode exclusive its device goes along; its share stays, and is no good."""
    world.label(mode)
    async with world.serving(world.dependencies()):
        await world.all_good()
        world.leave(0, visible=visible)
        await world.kubelet.until(lambda: world.shares()[FIRST] is False)
        assert list(world.shares().values()).count(True) == 3
        await until(lambda: world.events_of("RDMACardUnhealthy"))
        assert MOVED in world.events_of("RDMACardUnhealthy")[0]
        world.leave()
        await world.all_good()
        await until(lambda: world.events_of("RDMACardHealthy"))


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize(("driver", "why"), [("mlx5_core", DEVICE_GONE), (None, "no driver")])
async def test_a_card_whose_rdma_device_goes_stays_in_its_pool_and_is_told(
    world, mode, driver, why
):
    """Its module was taken out, or a firmware recovers: the function is there all the time."""
    world.label(mode)
    async with world.serving(world.dependencies()):
        await world.all_good()
        if mode == "shared":  # in the other a pod has the device
            await world.kubelet.allocate(VKE, 1, (FIRST,), place=ContainerPlace("job"))
        world.lose(0, driver=driver)
        await until(lambda: world.events_of("RDMACardUnhealthy"))
        event = world.events_of("RDMACardUnhealthy")[0]
        assert "mlx5_0" in event
        assert why in event
        await world.kubelet.until(lambda: world.shares()[FIRST] is False)
        world.leave()
        await world.all_good()
        await until(lambda: world.events_of("RDMACardHealthy"))


async def test_a_card_that_a_pod_holds_stays_healthy_and_free_ones_do_not(world):
    """The kubelet's word is a record: what moved the interface may be another plugin."""
    world.label("exclusive")
    async with world.serving(world.dependencies()):
        await world.all_good()
        await world.kubelet.allocate(VKE, 1, (FIRST,), place=ContainerPlace("job"))
        world.leave(0, 1)
        await world.kubelet.until(lambda: world.shares()[SECOND] is False)
        assert world.shares()[FIRST] is True


class Networks:
    """Pod networks of which only the records count; `recorded` None: not read yet."""

    limits = None

    def __init__(self):
        self.recorded = None

    def offered(self, pools, withdrawn=()):
        """Not asked here."""

    def attachments(self):
        return ()

    def cards(self):
        return self.recorded

    async def run(self, late):
        """Nothing to serve."""


async def test_a_card_of_a_record_stays_healthy_whoever_holds_what(world):
    """A network without a share moves a card too."""
    world.label("exclusive")
    networks = Networks()
    networks.recorded = frozenset({CardId(position(0).pci)})
    async with world.serving(replace(world.dependencies(), networks=networks)):
        await world.all_good()
        world.leave(0, 1)
        await world.kubelet.until(lambda: world.shares()[SECOND] is False)
        assert world.shares()[FIRST] is True
