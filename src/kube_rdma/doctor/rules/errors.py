"""KR127 and KR129: ports that are up and whose error counters rise while they are watched.

Two of the checks of cards.py, which has their place among them. `rises` says which counters are
worth to be kept; doctor/errors reads them twice. A counter that stands at a number says
nothing, for nobody knows since when: only what rises is told. Names are those of
Documentation/ABI/stable/sysfs-class-infiniband and of the drivers: mlx5/counters.c,
bnxt_re/hw_counters.c below drivers/infiniband/hw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_rdma.doctor.rules.flow_control import active_ports, priorities, roce_ports
from kube_rdma.model.device import Device, LinkLayer, Port
from kube_rdma.model.doctor import Observation, ObservedErrors
from kube_rdma.model.finding import Finding, Severity

# Bits, lanes and packets that a cable damages, in `counters` of any link layer.
LINK = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
    *("port_rcv_remote_physical_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "rx_icrc_encapsulated", "rx_roce_errors"),
    # The same by network drivers. Symbols count that FEC could not correct, and blocks of FEC.
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
_ALL_PRIORITIES = 8
_PRIORITIES = range(_ALL_PRIORITIES)
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
STORM_SHARE = 0.5  # of the time, in a pause; a guess, and docs/doctor.md calls it so
_MICROSECONDS = 1e6
_KEPT = (*LINK, *LOSS, *DISCARDS, *STORMS, *PAUSED, *PAUSES, *CONGESTION)


def rises(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The counters of these tables that rose; one that fell was reset, and says nothing."""
    named = ((name, after.get(name), before.get(name)) for name in _KEPT)
    grown = ((name, now - was) for name, now, was in named if now is not None and was is not None)
    return tuple((name, more) for name, more in grown if more > 0)


def lost_packets(seen: Observation) -> Iterator[Finding]:
    """RoCE ports that lose packets while PFC is off, or on for some priorities alone."""
    controls = {one.interface: one for one in seen.flow_control or ()}
    for device, port in roce_ports(seen):
        watched, control = _watched(seen, device, port), controls.get(port.netdev or "")
        if control is None or control.pfc is None or watched is None or not _of(watched, LOSS):
            continue
        if len(control.pfc) < _ALL_PRIORITIES:
            evidence = _evidence(watched, (*LOSS, *DISCARDS, *CONGESTION))
            yield Finding(
                device.name,
                f"PFC is {priorities(control.pfc)} on {port.netdev}; {evidence}",
                _cause(control.pfc),
                _remedy(control.pfc),
                Severity.WARNING,
            )


def _cause(pfc: tuple[int, ...]) -> str:
    """Why packets get lost, by the priorities that have PFC."""
    if not pfc:
        return "RoCE loses packets, and no priority of this port has PFC: a full buffer drops them"
    return "RoCE loses packets: its traffic may be in a priority that has no PFC"


def _remedy(pfc: tuple[int, ...]) -> str:
    if not pfc:
        return (
            "Switch PFC on for the priority of RDMA on all hosts and switches, or set up ECN on "
            "all of them where the fabric is meant to be lossy"
        )
    which = priorities(pfc).removeprefix("on for ")
    return (
        f"Send RDMA in {which}: NCCL_IB_TC and UCX_IB_TRAFFIC_CLASS are 4 times the DSCP that the "
        "port maps to it (dcb app show dev INTERFACE)"
    )


_STORM_REMEDY = (
    "Where counters of tx rise, this host is slow: see its PCIe link (KR125), memory and driver. "
    "Where those of rx rise, follow the pauses from the switch's port to who sends them"
)


def rising(seen: Observation) -> Iterator[Finding]:
    """Ports that are up and have errors now: of the link, pause storms, packets that got lost."""
    for device, port in active_ports(seen):
        watched = _watched(seen, device, port)
        if watched is not None and (wrong := _wrong(watched, port)):
            names, cause, remedy = wrong
            yield Finding(
                device.name,
                f"port {port.number} is up; {_evidence(watched, names)}",
                cause,
                remedy,
                Severity.WARNING,
            )


def _wrong(watched: ObservedErrors, port: Port) -> tuple[tuple[str, ...], str, str] | None:
    """The counters that count, cause and remedy of what rose; the first of several stories."""
    if _of(watched, LINK):
        return (
            (*LINK, *LOSS, *DISCARDS),
            "The link damages data or goes down now and then: cable, transceiver, switch port",
            "Reseat cable and transceiver, then replace them; try another switch port",
        )
    if storm := _storm(watched):
        return (
            storm,
            "A pause storm: a receiver takes packets so slowly that its pauses stop the fabric",
            _STORM_REMEDY,
        )
    if _of(watched, LOSS if port.link_layer is LinkLayer.ETHERNET else _SURE_LOSS):
        return (
            (*LOSS, *DISCARDS),
            "Packets get lost on the way: a full buffer of a switch, or a bad link behind it",
            "Look at drops and errors of the switches' ports; see PFC and ECN on the way",
        )
    if _of(watched, DISCARDS):
        return (
            (*DISCARDS, *PAUSES),
            "The port drops packets, for its own buffer is full: this host takes them too slowly",
            "See the card's PCIe link (KR125) and PFC of the port; traffic of TCP counts, too",
        )
    return None


def _storm(watched: ObservedErrors) -> tuple[str, ...]:
    """The counters that tell of a pause storm, with those beside them; none without one."""
    most = watched.seconds * _MICROSECONDS * STORM_SHARE
    long = tuple(name for name, more in watched.rises if name in PAUSED and more > most)
    return (*STORMS, *long, *PAUSES) if long or _of(watched, STORMS) else ()


def _watched(seen: Observation, device: Device, port: Port) -> ObservedErrors | None:
    """What rose on a port; None for nothing."""
    of_port = (one for one in seen.errors or () if one.device == device.name)
    return next((one for one in of_port if one.port == port.number), None)


def _of(watched: ObservedErrors, names: tuple[str, ...]) -> bool:
    return any(name in names for name, _ in watched.rises)


def _evidence(watched: ObservedErrors, names: tuple[str, ...]) -> str:
    """``within 2 s symbol_error rose by 12, link_downed by 1``."""
    first, *others = ((name, more) for name, more in watched.rises if name in names)
    texts = [f"{first[0]} rose by {first[1]}", *(f"{name} by {more}" for name, more in others)]
    return f"within {watched.seconds:g} s {', '.join(texts)}"
