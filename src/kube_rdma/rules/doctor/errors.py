"""KR127 and KR129: ports that are up and whose error counters rise while they are watched.

Two of the checks of cards.py, which has their place among them. `rises` says which counters are
worth to be kept; programs/doctor/errors reads them twice. A counter that stands at a number says
nothing, for nobody knows since when: only what rises is told. Names are those of
Documentation/ABI/stable/sysfs-class-infiniband and of the drivers: mlx5/counters.c,
bnxt_re/hw_counters.c below drivers/infiniband/hw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube_rdma.model.device import Device, LinkLayer, Port
from kube_rdma.model.doctor import Observation, ObservedErrors
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.rules.doctor.flow_control import active_ports, priorities, roce_ports

# Bits, lanes and packets that a cable damages, in `counters` of any link layer.
LINK = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
    *("port_rcv_remote_physical_errors", "local_link_integrity_errors"),
    *("excessive_buffer_overrun_errors", "rx_icrc_encapsulated", "rx_roce_errors"),
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


def rises(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The counters of these tables that rose; one that fell was reset, and says nothing."""
    named = ((name, after.get(name), before.get(name)) for name in (*LINK, *LOSS, *CONGESTION))
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
            evidence = _evidence(watched, (*LOSS, *CONGESTION))
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


def rising(seen: Observation) -> Iterator[Finding]:
    """Ports that are up and have errors now: of the link, or packets that got lost."""
    for device, port in active_ports(seen):
        watched = _watched(seen, device, port)
        if watched is None:
            continue
        if _of(watched, LINK):
            yield Finding(
                device.name,
                f"port {port.number} is up; {_evidence(watched, (*LINK, *LOSS))}",
                "The link damages data or goes down now and then: cable, transceiver, switch port",
                "Reseat cable and transceiver, then replace them; try another switch port",
                Severity.WARNING,
            )
        elif _of(watched, LOSS if port.link_layer is LinkLayer.ETHERNET else _SURE_LOSS):
            yield Finding(
                device.name,
                f"port {port.number} is up; {_evidence(watched, LOSS)}",
                "Packets get lost on the way: a full buffer of a switch, or a bad link behind it",
                "Look at drops and errors of the switches' ports; see PFC and ECN on the way",
                Severity.WARNING,
            )


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
