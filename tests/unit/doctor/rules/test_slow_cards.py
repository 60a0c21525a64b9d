"""Cards that are up and slow: what is named, what follows from it, and what is no fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.doctor.rules.cards import bridges_of
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.doctor.rules.errors import Majority, majority
from kube_rdma.hardware.rules.error_counters import rises
from kube_rdma.model.device import LinkLayer, PciAddress, PcieLink
from kube_rdma.model.doctor import ObservedBridge, ObservedDomain, ObservedErrors
from kube_rdma.model.finding import Severity
from tests.kit.nodes import position
from tests.unit.doctor.rules.healthy import (
    DEVICES,
    GPUS,
    HEALTHY,
    PORTS,
    SURVEY,
    below_a_switch,
    card,
    codes,
    flow_control,
    rising,
    with_device,
)
from tests.unit.doctor.rules.test_faults import DMA, DOWN, FAULTS, survey


@pytest.mark.parametrize("virtual", [True, None])
@pytest.mark.parametrize("name", ["ACS on the card's side", "IOMMU translates"])
def test_a_virtual_machine_is_not_told_to_switch_acs_or_iommu_off(name, virtual):
    """Nor is a machine of which it is not known."""
    seen = replace(FAULTS[name][1], virtual_machine=virtual)
    assert not {"KR141", "KR142"} & set(codes(seen))


@pytest.mark.parametrize("acs", [(0, 0), (0x53, 0x53)])
def test_ports_that_do_not_redirect_are_well(acs):
    """Source validation, translation blocking, upstream forwarding and direct translated P2P."""
    assert codes(below_a_switch(acs)) == []


def test_a_port_outside_of_the_way_says_nothing():
    """The switch's own ports up, and those of others."""
    seen = below_a_switch((0, 0))
    others = tuple(ObservedBridge(pci, 0x1D) for pci in PORTS[:2])
    assert codes(replace(seen, bridges=(*seen.bridges, *others))) == []


def test_a_slow_uplink_is_named_with_both_ends_and_all_cards_below_it():
    root, upper, *sides = PORTS
    positions = [
        replace(one.position, path=(root, upper, side, one.position.pci))
        for one, side in zip(DEVICES, sides, strict=True)
    ]
    devices = tuple(replace(one, position=at) for one, at in zip(DEVICES, positions, strict=True))
    below = replace(SURVEY, devices=devices)
    seen = replace(HEALTHY, survey=below, pcie=(*HEALTHY.pcie, PcieLink(upper, 8, 16, 16, 32)))
    (found,) = (one for one in diagnose(seen).findings if one.code == "KR125")
    assert found.subject == "mlx5_0, mlx5_1"
    assert found.problem == (
        "PCIe from 0000:10:00.0 to 0000:11:00.0, the switch above mlx5_0, mlx5_1: "
        "x8 at 16 GT/s (126 Gb/s); both of its ends support x16 at 32 GT/s"
    )
    well = replace(seen, pcie=(*HEALTHY.pcie, PcieLink(upper, 16, 16, 16, 16)))
    assert "KR125" not in codes(well)


def test_an_iommu_is_no_matter_without_a_gpu():
    assert codes(replace(survey(gpus=()), domains=DMA)) == []


def test_what_follows_from_lost_packets_comes_behind():
    seen = rising("out_of_sequence", flow_control=flow_control(pfc=()))
    assert [(one.code, one.follows) for one in diagnose(seen).findings] == [
        ("KR127", ""),
        ("KR129", "KR127"),
    ]


def test_loss_is_not_said_to_come_of_flow_control_that_is_on_or_not_seen():
    for pfc in (None, tuple(range(8))):
        seen = rising("out_of_sequence", flow_control=flow_control(pfc=pfc))
        assert codes(seen) == ["KR129"]


def test_packets_that_overtake_others_are_no_error_in_infiniband():
    """Adaptive routing sends them on several ways."""
    port = {"link_layer": LinkLayer.INFINIBAND, "gids": ()}
    seen = replace(with_device(port=port), errors=rising("out_of_sequence").errors)
    assert codes(seen) == []


def test_congestion_alone_is_no_error():
    """Notifications are how ECN works."""
    assert codes(rising("np_cnp_sent", "rp_cnp_handled")) == []


def test_pauses_alone_are_no_error():
    """A lossless fabric works by them."""
    assert codes(rising("rx_pause_ctrl_phy", "tx_pfc_frames", "rx_prio3_pause_duration")) == []


@pytest.mark.parametrize("name", ["rx_prio3_pause_duration", "pfc_pri3_rx_duration_us"])
@pytest.mark.parametrize(("paused", "wrong"), [(999_999, False), (1_100_000, True)])
def test_a_port_that_is_stopped_most_of_the_time_has_a_pause_storm(name, paused, wrong):
    """Of two seconds, in microseconds."""
    seen = replace(HEALTHY, errors=(ObservedErrors("mlx5_0", 1, 2.0, ((name, paused),)),))
    findings = diagnose(seen).findings
    assert [one.code for one in findings] == ["KR129"] * wrong
    assert all(f"{name} rose by {paused}" in one.problem for one in findings)
    assert all(one.cause.startswith("A pause storm") for one in findings)


def test_the_cable_stands_before_what_follows_from_it():
    seen = rising("link_down_events_phy", "rx_discards_phy", "symbol_error")
    (first,) = diagnose(seen).findings
    assert first.cause.startswith("The link damages data")


def test_discards_of_a_port_are_no_loss_of_roce():
    """They may be TCP's: only what RDMA counts is said to want PFC."""
    assert codes(rising("rx_discards_phy", flow_control=flow_control(pfc=()))) == ["KR129"]


def test_errors_of_a_port_that_is_down_are_not_told_besides():
    down = with_device(port=DOWN, netdev={"up": False, "carrier": None})
    assert "KR129" not in codes(replace(down, errors=rising("link_downed").errors))


FULL = ObservedErrors("mlx5_0", 1, 2.0, (), (("link_downed", 255), ("symbol_error", 65535)))
INFINIBAND = with_device(port={"link_layer": LinkLayer.INFINIBAND, "gids": ()})


@pytest.mark.parametrize(
    ("base", "remedy"), [(INFINIBAND, "perfquery -C mlx5_0 -P 1 -R"), (HEALTHY, "A restart")]
)
def test_full_counters_are_not_checked_and_no_alarm(base, remedy):
    """A port may have had its errors years ago; but nobody would see new ones."""
    judged = diagnose(replace(base, errors=(FULL,)))
    (only,) = judged.findings
    assert (only.code, only.severity, judged.ill) == ("KR129", Severity.ADVICE, False)
    assert only.problem == (
        "full counters of port 1 are not checked: link_downed (255), symbol_error (65535)"
    )
    assert only.remedy.startswith(remedy)
    assert "KR129" not in judged.passed
    assert "KR127" in judged.passed, "which does not read them"


def test_discards_that_are_full_are_not_checked_for_flow_control_either():
    full = replace(FULL, full=(("port_xmit_discards", 65535),))
    seen = replace(HEALTHY, errors=(full,))
    assert codes(seen) == ["KR127", "KR129"]
    assert not diagnose(seen).ill
    lossless = replace(seen, flow_control=flow_control(pfc=tuple(range(8))))
    assert codes(lossless) == ["KR129"], "no port without PFC is asked for its losses"


def test_full_counters_stand_behind_those_that_rise():
    both = replace(FULL, rises=(("port_rcv_errors", 3),))
    found = diagnose(replace(INFINIBAND, errors=(both,))).findings
    assert [one.severity for one in found] == [Severity.WARNING, Severity.ADVICE]


def test_the_priority_that_has_pfc_is_named():
    (first, _) = diagnose(rising("out_of_sequence")).findings
    assert first.problem == (
        "PFC is on for priority 3 on eth0; within 2 s out_of_sequence rose by 7"
    )
    assert first.remedy.startswith("Send RDMA in priority 3: ")


def test_a_machine_with_acs_on_all_ports_has_one_finding():
    """A node of eight cards has one cause and one fix."""
    upper = PORTS[:2]
    sides = [PciAddress(f"0000:12:{n:02x}.0") for n in range(16)]
    devices, gpus = [], []
    for number in range(8):
        of_card, of_gpu = position(0x20 + number), position(0x30 + number)
        at = replace(of_card, path=(*upper, sides[number], of_card.pci))
        devices.append(replace(card(number, 0x20 + number)[1], position=at))
        gpu = replace(of_gpu, path=(*upper, sides[8 + number], of_gpu.pci))
        gpus.append(replace(GPUS[0], position=gpu))
    whole = replace(SURVEY, functions=(), devices=tuple(devices), gpus=tuple(gpus))
    bridges = tuple(ObservedBridge(port, 0x1D) for port in sides)
    domains = tuple(ObservedDomain(one.position.pci, "DMA") for one in devices)
    seen = replace(HEALTHY, survey=whole, bridges=bridges, domains=domains)
    named = [one for one in diagnose(seen).findings if one.code in ("KR141", "KR142")]
    assert [(one.code, one.subject) for one in named] == [
        ("KR141", "mlx5_0, mlx5_1, mlx5_2 and 5 more"),
        ("KR142", "mlx5_0, mlx5_1, mlx5_2 and 5 more"),
    ]
    assert bridges_of(whole) == (sides[0], *sides[8:], *sides[1:8])


VALUES = st.lists(st.sampled_from("abc"), max_size=12)


@given(VALUES)
def test_a_majority_is_three_quarters_of_at_least_four(values):
    common = majority(values)
    top = max(map(values.count, values), default=0)
    assert (common is not None) == (len(values) >= 4 and 4 * top >= 3 * len(values))
    if common:
        assert values.count(common.value) == common.agreeing == top
        assert common.every == len(values)


def test_of_three_nobody_is_odd():
    assert majority("aab") is None
    assert majority("aaab") == Majority("a", 3, 4)


COUNTERS = st.dictionaries(
    st.sampled_from(["symbol_error", "out_of_sequence", "port_rcv_data"]), st.integers(0, 9)
)


@given(COUNTERS, COUNTERS)
def test_what_rises_is_an_error_that_both_readings_have(before, after):
    grown = dict(rises(before, after))
    for name, more in grown.items():
        assert name != "port_rcv_data"
        assert after[name] - before[name] == more > 0
    errors = {name for name in before.keys() & after.keys() if name != "port_rcv_data"}
    assert {name for name in errors if after[name] > before[name]} == grown.keys()
