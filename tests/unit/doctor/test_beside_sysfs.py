"""Counters are read twice: what rises meanwhile is seen, what merely stands there is not."""

from __future__ import annotations

import pytest

from kube_base.errors import Unavailable
from kube_rdma.doctor.beside_sysfs import watched_errors
from kube_rdma.hardware.error_counters import InterfaceStatistics
from kube_rdma.hardware.machines import machine
from kube_rdma.hardware.recorded_survey import survey_at
from kube_rdma.model.doctor import ObservedErrors
from kube_rdma_testing.kernel.tree import write_tree
from kube_rdma_testing.kernel.tree_counters import write_counters
from tests.unit.agent.world import hard_card

PORT = "mlx5_0/ports/1"


@pytest.fixture
def root(tmp_path):
    write_tree(tmp_path, [hard_card(0), hard_card(1)])
    write_counters(tmp_path, PORT, "counters", {"symbol_error": 900, "port_rcv_data": 1})
    write_counters(tmp_path, PORT, "hw_counters", {"out_of_sequence": 5})
    return tmp_path


def then(root, folder, counters):
    """A pause in which counters change."""

    async def pause(seconds):
        assert seconds == 2.0
        write_counters(root, PORT, folder, counters)

    return pause


async def test_what_rises_is_told_by_port(root):
    change = then(root, "counters", {"symbol_error": 912, "port_rcv_data": 10**9})
    seen = await watched_errors(2.0, root=root, pause=change)
    assert seen == (ObservedErrors("mlx5_0", 1, 2.0, (("symbol_error", 12),)),)


@pytest.mark.parametrize("count", [900, 0])
async def test_what_stands_or_was_reset_is_nothing(root, count):
    pause = then(root, "counters", {"symbol_error": count})
    assert await watched_errors(2.0, root=root, pause=pause) == ()


async def test_a_counter_that_appears_meanwhile_has_not_risen(root):
    pause = then(root, "counters", {"link_downed": 4})
    assert await watched_errors(2.0, root=root, pause=pause) == ()


# leptonai/gpud#943: the counters of a ConnectX-7 whose port has had errors for long. Then those of
# an hfi1 with as many, whose symbol_error is always 0, and one that was reset some time ago.
POSTED = {
    "link_downed": 255,
    "port_xmit_discards": 65535,
    "excessive_buffer_overrun_errors": 15,
    "port_xmit_wait": 4294967295,
}
OMNI_PATH = {"symbol_error": 0, "link_error_recovery": 255, "local_link_integrity_errors": 15}
RESET = {"link_downed": 254, "symbol_error": 255, "excessive_buffer_overrun_errors": 0}


@pytest.mark.parametrize(
    ("counters", "names"),
    [
        (POSTED, {"link_downed", "port_xmit_discards", "excessive_buffer_overrun_errors"}),
        (OMNI_PATH, {"link_error_recovery", "local_link_integrity_errors"}),
        (RESET, set()),
    ],
)
async def test_a_counter_at_its_maximum_is_told_for_it_cannot_rise(root, counters, names):
    """port_xmit_wait is at its end too, but no check reads it."""
    write_counters(root, PORT, "counters", counters)
    seen = await watched_errors(2.0, root=root, pause=nothing)
    full = tuple((name, counters[name]) for one in seen for name, _ in one.full)
    assert seen == ((ObservedErrors("mlx5_0", 1, 2.0, (), full),) if names else ())
    assert {name for name, _ in full} == names


@pytest.mark.parametrize(
    ("first", "then_", "seen"),
    [(65534, 65535, ((("symbol_error", 1),), ())), (65535, 12, None), (65536, 65536, None)],
)
async def test_a_counter_that_moves_is_not_full(root, first, then_, seen):
    """Nor is one of more bits than the kernel's, whatever driver has it."""
    write_counters(root, PORT, "counters", {"symbol_error": first})
    read = await watched_errors(
        2.0, root=root, pause=then(root, "counters", {"symbol_error": then_})
    )
    assert [(one.rises, one.full) for one in read] == ([seen] if seen else [])


async def test_counters_of_64_bits_have_no_such_maximum(root):
    write_counters(root, PORT, "hw_counters", {"out_of_sequence": 65535, "packet_seq_err": 255})
    assert await watched_errors(2.0, root=root, pause=nothing) == ()


async def test_without_counters_or_without_time_nothing_is_seen(root, tmp_path):
    with pytest.raises(Unavailable, match="--interval 0"):
        await watched_errors(0, root=root)
    with pytest.raises(Unavailable, match="no port has counters"):
        await watched_errors(2.0, root=tmp_path / "none")


class FakeDriver:
    """What interfaces count; each look adds `rises`."""

    def __init__(self, rises, refusing=()):
        self.rises, self.refusing, self.looks = rises, refusing, 0

    def ask(self, interface):
        if interface in self.refusing:
            raise Unavailable(f"the driver of {interface} tells no statistics")
        self.looks += 1
        return {"rx_packets": self.looks} | {n: 5 + self.looks * m for n, m in self.rises.items()}


async def nothing(_seconds):
    pass


async def test_counters_of_the_interface_are_told_with_those_of_the_device(root):
    survey = survey_at(root)
    driver = FakeDriver({"rx_discards_phy": 2}, refusing={survey.devices[1].ports[0].netdev})
    statistics = InterfaceStatistics(survey.devices, driver.ask)
    change = then(root, "counters", {"symbol_error": 912})
    (seen,) = await watched_errors(2.0, statistics.read, root=root, pause=change)
    assert seen.rises == (("symbol_error", 12), ("rx_discards_phy", 2))
    assert "tells no statistics" in str(statistics.refused)


async def test_a_card_that_counts_by_its_interface_alone_is_watched(tmp_path):
    """irdma's hw_counters have no errors of the cable."""
    write_tree(tmp_path, [hard_card(0)])
    statistics = InterfaceStatistics(
        survey_at(tmp_path).devices, FakeDriver({"rx_crc_errors.nic": 4}).ask
    )
    (seen,) = await watched_errors(2.0, statistics.read, root=tmp_path, pause=nothing)
    assert seen.rises == (("rx_crc_errors.nic", 4),)


def test_interfaces_of_functions_behind_the_switch_are_not_asked():
    """Netlink names a representor for each port of a card in switchdev mode."""
    statistics = InterfaceStatistics(survey_at(machine("cx5-dual")).devices, FakeDriver({}).ask)
    asked = {device: port for device, port in statistics.read() if device in ("mlx5_0", "mlx5_1")}
    assert asked == {"mlx5_0": 4, "mlx5_1": 4}
