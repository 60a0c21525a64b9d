"""What a look at the error counters of pools' cards reads, what it costs, what comes of it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs import counters as sysfs
from kube_rdma.hardware.error_counters import CardErrors
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.device import PortState
from kube_rdma.pools.rules.node_health import node_cards
from kube_rdma_testing.kernel.tree import write_tree
from kube_rdma_testing.kernel.tree_counters import write_counters
from tests.unit.agent.world import hard_card

WALL = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
FILES = {"counters": ("symbol_error", "link_downed"), "hw_counters": ("packet_seq_err",)}


class Kernel:
    """Eight cards, of which pools have two; it counts what is read of each."""

    def __init__(self, root, monkeypatch):
        self.root, self.now, self.reads, self.symbols, self.pulse = root, 0.0, Counter(), 0, 0
        devices = [hard_card(number) for number in range(8)]
        write_tree(root, devices)
        for device in devices:
            for folder, names in FILES.items():
                values = dict.fromkeys(names, 0)
                write_counters(root, f"{device.name}/ports/1", folder, values)
        self.cards = node_cards(survey_at(root))
        read_each = sysfs.read_each

        def counted(paths, folder, size):
            paths = tuple(paths)
            self.reads["files"] += len(paths)
            return read_each(paths, folder, size)

        monkeypatch.setattr(sysfs, "read_each", counted)
        self.errors = CardErrors(root, self.ask, lambda: self.now)
        self.degraded = self.errors.look(self.cards[:2])

    def ask(self, interface):
        self.reads[interface] += 1
        if interface == "eth1":
            raise Unavailable("the driver of eth1 tells no statistics")
        return {"rx_crc_errors_phy": self.pulse, "rx_packets": self.reads[interface]}

    async def look(self, count=1, symbols=0, pulse=0):
        """So many readings, five minutes apart; the first card's counters rise by so much each."""
        for _ in range(count):
            self.now += 300
            self.symbols, self.pulse = self.symbols + symbols, self.pulse + pulse
            write_counters(self.root, "mlx5_0/ports/1", "counters", {"symbol_error": self.symbols})
            await self.errors.read(WALL)
        self.degraded = self.errors.look(self.cards[:2])


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    return Kernel(tmp_path, monkeypatch)


def is_cheap(reads, cards=2):
    """Whether each file and interface of the pools' cards was read once, and no other's.

    Beside its counters a card has 12 files, of its states, names and PCIe link.
    """
    interfaces = {name: count for name, count in reads.items() if name != "files"}
    counters = sum(map(len, FILES.values()))
    once = {f"eth{number}": 1 for number in range(cards)}
    return interfaces == once and reads["files"] <= cards * (counters + 12)


async def test_a_look_reads_each_counter_of_pools_once_and_nothing_of_other_cards(kernel):
    await kernel.look()
    assert is_cheap(kernel.reads), kernel.reads
    await kernel.look()
    assert not is_cheap(kernel.reads), "two looks cost more, so the measure can fail"
    kernel.reads.clear()
    kernel.errors.look(kernel.cards)
    await kernel.errors.read(WALL)
    assert not is_cheap(kernel.reads), "nor would it pass if all cards were read"
    assert is_cheap(kernel.reads, cards=8)


@pytest.mark.parametrize("rises", [{"symbols": 100}, {"pulse": 100}])
async def test_counters_of_the_device_and_of_its_interface_degrade_the_card_alone(kernel, rises):
    await kernel.look(3, **rises)
    assert kernel.degraded == {}
    await kernel.look(1, **rises)
    (name,) = kernel.degraded
    assert name == kernel.cards[0].id
    counter = "symbol_error" if "symbols" in rises else "rx_crc_errors_phy"
    assert kernel.degraded[name].startswith(f"{counter} of port 1 of mlx5_0 rises by 20.0 a minute")
    await kernel.look(6)
    assert kernel.degraded == {}


async def test_a_verdict_outlasts_a_port_that_is_down_or_in_a_pod_and_not_its_pool(kernel):
    await kernel.look(4, symbols=100)
    first = kernel.cards[0]
    (port,) = first.devices[0].ports
    down = replace(first.devices[0], ports=(replace(port, state=PortState.DOWN),))
    for devices in ((down,), ()):
        assert kernel.errors.look([replace(first, devices=devices)])
        for _ in range(10):
            kernel.now += 300
            await kernel.errors.read(WALL)
        assert kernel.errors.look([first])
    assert kernel.errors.look(kernel.cards[1:2]) == {}
    await kernel.errors.read(WALL)
    assert kernel.errors.look([first]) == {}, "what left its pool is judged anew"


async def test_a_new_agent_judges_anew_whatever_the_counters_have_come_to(kernel):
    await kernel.look(4, symbols=100)
    kernel.errors = CardErrors(kernel.root, kernel.ask, lambda: kernel.now)
    kernel.errors.look(kernel.cards[:2])
    await kernel.look(3, symbols=100)
    assert kernel.degraded == {}
    await kernel.look(1, symbols=100)
    assert len(kernel.degraded) == 1


async def test_a_card_without_a_pci_function_is_not_read(kernel):
    first = kernel.cards[0]
    kernel.errors.look([replace(first, devices=(replace(first.devices[0], pci=None),))])
    await kernel.errors.read(WALL)
    assert kernel.reads.total() == 0
