"""Says which counters of a port mean errors, which fault they point to, and which port is degraded.

The doctor compares two readings that are seconds apart (KR127, KR129). The agent judges by the same
rules over time, with a reading each few minutes. A counter that stands at a number says nothing,
for nobody knows since when. Names are from Documentation/ABI/stable/sysfs-class-infiniband and of
the drivers: mlx5/counters.c, bnxt_re/hw_counters.c below drivers/infiniband/hw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from math import inf
from types import MappingProxyType

from kube_base.frozen import Frozen, replace
from kube_rdma.model.device import Device, LinkLayer, Port, PortState
from kube_rdma.model.kubernetes import moment

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


# Over time: a port that is up and degraded.

# In these a port only shows the fault of another one, which the doctor tells a person to look for.
_OF_OTHERS = ("port_rcv_remote_physical_errors", *(name for name in PAUSED if "rx_" in name))
_BY_LIMIT = (
    (2.0, (*LINK, *STORMS)),  # 120 an hour: the bit errors that InfiniBand's specification allows
    (0.1, tuple(name for name in LINK if name.startswith("link_down"))),
    (60_000.0, (*LOSS, *DISCARDS)),  # to send so many again costs a port about 1 %; a guess
    (STORM_SHARE * 60 * _MICROSECONDS, PAUSED),
)
# The rises a minute above which counters, over time, show that a card, cable or host is degraded.
LIMITS: Mapping[str, float] = MappingProxyType(
    {name: limit for limit, names in _BY_LIMIT for name in names if name not in _OF_OTHERS}
)

RISING_INTERVALS = 3  # one after another, in which the same counter rises
QUIET_SECONDS = 1800.0  # at half of that rate or less, until a verdict ends
SHORTEST_SECONDS = 60.0  # of an interval: what rises fast for less is a burst


class PortEvidence(Frozen):
    """The evidence that the readings of a port's counters have given so far.

    One interval with errors is no evidence: links are trained, cables pulled, switches restarted.
    Nor is one at whose ends the port was down or away, or in which a counter began anew.
    """

    at: float = -inf  # of the last reading, by a clock that does not jump
    counters: Mapping[str, int] = {}
    rising: Mapping[str, tuple[int, float]] = {}  # in the last intervals: in how many, since when
    counter: str = ""  # that the verdict is about
    why: str = ""  # the port is degraded; "" if it is not
    quiet: float = 0.0  # seconds without errors since then
    full: bool = False  # that counter can rise no more

    @property
    def sentence(self) -> str:
        """Return why the port is degraded, and what ends that; "" if it is not."""
        if not self.why:
            return ""
        reset = f"a reset of {self.counter}, which is full, and then " if self.full else ""
        end = f"{QUIET_SECONDS / 60:g} minutes below {LIMITS[self.counter] / 2:,.9g} a minute"
        return f"{self.why}; {reset}{end} end this"


def judged(
    before: PortEvidence, at: float, counters: Mapping[str, int], wall: datetime, port: str
) -> PortEvidence:
    """Return the evidence about a port after another reading, without counters if it was down.

    `at` is in seconds of a clock that does not jump, and `wall` is the time of day.
    """
    was, seconds = before.counters, at - before.at
    if seconds < SHORTEST_SECONDS:
        return before
    now = replace(before, at=at, counters=counters)
    if not (was and counters) or any(counters.get(name, old) < old for name, old in was.items()):
        return replace(now, rising={})
    risen = rises(was, counters)
    found = _faults(risen, seconds)
    streaks = {name: before.rising.get(name, (0, before.at)) for name in found}
    rising = {name: (intervals + 1, began) for name, (intervals, began) in streaks.items()}
    now = replace(now, rising=rising, full=before.counter in dict(full(was, counters)))
    long = [name for name, (intervals, _) in rising.items() if intervals >= RISING_INTERVALS]
    if long and before.counter not in long:
        counter, began = long[0], rising[long[0]][1]
        rate = dict(risen)[counter] * 60 / seconds
        since = moment(wall - timedelta(seconds=at - began))
        why = f"{counter} of {port} rises by {rate:,.1f} a minute since {since} "
        why += f"({found[counter].cause})"
        return replace(now, counter=counter, why=why, quiet=0.0, full=False)
    if _faults(tuple((name, 2 * more) for name, more in risen), seconds):
        return replace(now, quiet=0.0)
    quiet = before.quiet + (0.0 if now.full else seconds)
    return PortEvidence(at, counters) if quiet >= QUIET_SECONDS else replace(now, quiet=quiet)


def _faults(risen: Rises, seconds: float) -> Mapping[str, PortFault]:
    """Return the counters that rose fast enough, each with the fault that it points to alone."""
    return {
        name: found
        for name, more in risen
        if more * 60 / seconds > LIMITS.get(name, inf)
        # Packets may take several ways in Ethernet, too: as if nobody knew the link layer.
        and (found := fault(((name, more),), seconds, LinkLayer.UNKNOWN))
    }
