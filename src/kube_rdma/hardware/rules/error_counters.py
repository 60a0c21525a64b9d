"""Says which counters of a port mean errors, and which fault they point to.

A counter that stands at a number says nothing, for nobody knows since when: two readings are
compared. Names are from Documentation/ABI/stable/sysfs-class-infiniband and of the drivers:
mlx5/counters.c, bnxt_re/hw_counters.c below drivers/infiniband/hw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kube_base.frozen import Frozen
from kube_rdma.model.device import Device, LinkLayer, Port, PortState

Rises = tuple[tuple[str, int], ...]  # counters that rose, each with its rise


def active_ports(devices: Iterable[Device]) -> Iterator[tuple[Device, Port]]:
    """Yield active ports of hardware devices, without representors of functions behind a switch."""
    for device in devices:
        for port in device.own_ports:
            if device.pci and port.state is PortState.ACTIVE:
                yield device, port


# Bits, lanes and packets that a cable damages, in `counters` of any link layer.
LINK = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
    *("port_rcv_remote_physical_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "rx_icrc_encapsulated", "rx_roce_errors"),
    # The same by network drivers: also symbols and blocks that FEC could not correct.
    *("rx_pcs_symbol_err_phy", "rx_symbol_err_phy", "rx_crc_errors_phy", "link_down_events_phy"),
    *("rx_pcs_symbol_err", "rx_fec_uncorrectable_blocks", "rx_fcs_err_frames", "link_down_events"),
    *("rx_crc_errors.nic", "illegal_bytes.nic", "mac_local_faults.nic", "mac_remote_faults.nic"),
)
# Packets that came too late or never, in `hw_counters`, and those that a full buffer dropped.
LOSS = (
    *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err"),
    *("roce_slow_restart", "to_retransmits", "seq_err_naks_rcvd", "missing_resp"),
    *("max_retry_exceeded", "rx_roce_discards", "port_xmit_discards"),
)
# Where packets take several ways (adaptive routing, usual in InfiniBand) some overtake others, and
# nothing is lost: "Out-of-Order Data Placement" in NVIDIA's documents of MLNX_OFED.
_SURE_LOSS = tuple(name for name in LOSS if name != "out_of_sequence")
# No errors, but what else happens where packets get lost.
CONGESTION = ("np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets")
ALL_PRIORITIES = 8
_PRIORITIES = range(ALL_PRIORITIES)
# Packets of any kind that a port without a free buffer dropped, RoCE or not.
DISCARDS = (
    *("rx_discards_phy", "tx_discards_phy", "rx_dropped.nic"),
    *(f"rx_discard_packets_cos{number}" for number in _PRIORITIES),
)
# The card itself says that it stood still for long. mlx5: it sent pause frames beyond its
# watermarks (device_stall_minor_watermark_cnt and device_stall_critical_watermark_cnt).
STORMS = (
    *("tx_pause_storm_warning_events", "tx_pause_storm_error_events"),
    *("continuous_pause_events", "continuous_roce_pause_events"),
)
# Microseconds in which a port was stopped, or stopped its peer, by priority.
PAUSED = (
    *("rx_global_pause_duration", "tx_global_pause_duration"),
    *(f"{way}_prio{n}_pause_duration" for way in ("rx", "tx") for n in _PRIORITIES),
    *(f"pfc_pri{n}_{way}_duration_us" for way in ("rx", "tx") for n in _PRIORITIES),
)
# Frames that ask for a pause, which a lossless fabric needs: shown beside what is wrong.
PAUSES = (
    *("rx_pause_ctrl_phy", "tx_pause_ctrl_phy", "rx_pause_frames", "tx_pause_frames"),
    *("rx_pfc_frames", "tx_pfc_frames", "link_xoff_rx.nic", "link_xoff_tx.nic"),
)
STORM_SHARE = 0.5  # of the time, in a pause; a guess
_MICROSECONDS = 1e6
KEPT = (*LINK, *LOSS, *DISCARDS, *STORMS, *PAUSED, *PAUSES, *CONGESTION)


def rises(before: Mapping[str, int], after: Mapping[str, int]) -> Rises:
    """Return the known counters that rose, each with its rise.

    A counter that fell was reset, and is left out.
    """
    both = [name for name in KEPT if name in before and name in after]
    return tuple((name, more) for name in both if (more := after[name] - before[name]) > 0)


# Error counters of PortCounters (InfiniBand Architecture Specification) stop at all ones until they
# are reset. The folder `counters` has them in these bits with every driver: PORT_PMA_ATTR of
# drivers/infiniband/core/sysfs.c. hfi1 counts in 64 bits, and cuts them off here (hfi1/mad.c).
_FULL = (
    (0xF, ("local_link_integrity_errors", "excessive_buffer_overrun_errors")),
    (0xFF, ("link_error_recovery", "link_downed")),
    (0xFFFF, ("symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors")),
    (0xFFFF, ("port_xmit_discards",)),
)


def full(before: Mapping[str, int], after: Mapping[str, int]) -> Rises:
    """Return the counters that stayed at their maximum between two readings, with that maximum."""
    every = ((name, most) for most, names in _FULL for name in names)
    return tuple(
        (name, most) for name, most in every if before.get(name) == after.get(name) == most
    )


_STORM_REMEDY = (
    "If tx counters rise, see this host's PCIe link (KR125), memory and driver. "
    "If rx counters rise, look for the sender of the pauses behind the switch"
)


class PortFault(Frozen):
    """A fault that risen counters point to: the counters to show for it, its cause and remedy."""

    shown: tuple[str, ...]
    cause: str
    remedy: str


def fault(risen: Rises, seconds: float, link_layer: LinkLayer) -> PortFault | None:
    """Return the fault of a port whose counters rose within `seconds`; None without one.

    Of several faults the first counts.
    """
    if rose(risen, LINK):
        return PortFault(
            (*LINK, *LOSS, *DISCARDS),
            "The link damages data, or goes down now and then",
            "Reseat or replace cable and transceiver; try another switch port",
        )
    if storm := _storm(risen, seconds):
        return PortFault(
            storm,
            "A pause storm: pauses of a slow receiver stop the fabric",
            _STORM_REMEDY,
        )
    if rose(risen, LOSS if link_layer is LinkLayer.ETHERNET else _SURE_LOSS):
        return PortFault(
            (*LOSS, *DISCARDS),
            "Packets get lost in a switch with a full buffer, or on a bad link",
            "See drops, errors, PFC and ECN of the switches' ports",
        )
    if rose(risen, DISCARDS):
        return PortFault(
            (*DISCARDS, *PAUSES),
            "The port drops packets, for this host takes them too slowly",
            "See the PCIe link (KR125) and PFC of the port; dropped TCP packets count, too",
        )
    return None


def _storm(risen: Rises, seconds: float) -> tuple[str, ...]:
    """Return the names of the counters to show for a pause storm; () where there is none."""
    most = seconds * _MICROSECONDS * STORM_SHARE
    long = tuple(name for name, more in risen if name in PAUSED and more > most)
    return (*STORMS, *long, *PAUSES) if long or rose(risen, STORMS) else ()


def rose(risen: Rises, names: tuple[str, ...]) -> bool:
    """Return whether one of the named counters rose."""
    return any(name in names for name, _ in risen)
