"""Every family that the agent exports: THE table, from which docs/metrics.md is written.

Names, types and units of ``node_infiniband_*`` are node_exporter's (collector/infiniband_linux.go,
with sysfs/class_infiniband.go of procfs), so that its dashboards and alerts go on working; those of
``rdma_exporter_node_infiniband_*`` are VKE's. Whoever adds a family adds it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kube_rdma.model.metrics import MetricFamily, MetricKind

PORT = ("device", "port")
HOLDER = ("namespace", "pod", "container")
NODE, VKE, OWN = "node_infiniband_", "rdma_exporter_node_infiniband_", "kube_rdma_"
FACTOR = 4  # files of data count words of 32 bits (InfiniBand specification, PortCounters)
Table = Mapping[str, MetricFamily]
"""Families by the file that their values are read from."""

DATA = frozenset({"port_rcv_data", "port_xmit_data", "port_rcv_data_64", "port_xmit_data_64"})

# Of a port: file, node_exporter's name without its beginning, what it counts.
_COUNTERS = (
    ("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors", "buffer overruns"),
    ("link_downed", "link_downed", "failures of the link to recover, after which it was down"),
    ("link_error_recovery", "link_error_recovery", "recoveries of the link from errors"),
    ("local_link_integrity_errors", "local_link_integrity_errors", "excesses of local errors"),
    ("multicast_rcv_packets", "multicast_packets_received", "multicast packets received"),
    ("multicast_xmit_packets", "multicast_packets_transmitted", "multicast packets sent"),
    ("port_rcv_constraint_errors", "port_constraint_errors_received", "packets refused by rules"),
    ("port_xmit_constraint_errors", "port_constraint_errors_transmitted", "packets not let out"),
    ("port_rcv_data", "port_data_received_bytes", "bytes received (the file × 4)"),
    ("port_xmit_data", "port_data_transmitted_bytes", "bytes sent (the file × 4)"),
    ("port_rcv_discards", "port_discards_received", "packets discarded that came in"),
    ("port_xmit_discards", "port_discards_transmitted", "packets discarded that were to go out"),
    ("port_rcv_errors", "port_errors_received", "packets with an error that came in"),
    ("port_rcv_packets", "port_packets_received", "packets received"),
    ("port_xmit_packets", "port_packets_transmitted", "packets sent"),
    ("port_rcv_remote_physical_errors", "port_receive_remote_physical_errors", "bad packet ends"),
    ("port_rcv_switch_relay_errors", "port_receive_switch_relay_errors", "packets not relayed"),
    ("port_xmit_wait", "port_transmit_wait", "ticks in which data waited"),
    ("symbol_error", "symbol_error", "small errors of the link"),
    ("unicast_rcv_packets", "unicast_packets_received", "unicast packets received"),
    ("unicast_xmit_packets", "unicast_packets_transmitted", "unicast packets sent"),
    ("VL15_dropped", "vl15_dropped", "management packets dropped for want of room"),
    # The folder counters_ext, of kernels before 4.5.
    ("port_multicast_rcv_packets", "legacy_multicast_packets_received", "multicast received"),
    ("port_multicast_xmit_packets", "legacy_multicast_packets_transmitted", "multicast sent"),
    ("port_rcv_data_64", "legacy_data_received_bytes", "bytes received (the file × 4)"),
    ("port_rcv_packets_64", "legacy_packets_received", "packets received"),
    ("port_unicast_rcv_packets", "legacy_unicast_packets_received", "unicast received"),
    ("port_unicast_xmit_packets", "legacy_unicast_packets_transmitted", "unicast sent"),
    ("port_xmit_data_64", "legacy_data_transmitted_bytes", "bytes sent (the file × 4)"),
    ("port_xmit_packets_64", "legacy_packets_transmitted", "packets sent"),
)
# Of the hardware, those that node_exporter has names for.
_HARDWARE = (
    ("duplicate_request", "duplicate_requests_packets", "requests that came twice"),
    ("implied_nak_seq_err", "implied_nak_seq_errors", "answers with a number beyond the expected"),
    ("local_ack_timeout_err", "local_ack_timeout_errors", "timers that ran out without an answer"),
    ("np_cnp_sent", "np_cnp_packets_sent", "congestion notifications sent"),
    ("np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets_received", "packets with ECN mark"),
    ("out_of_buffer", "out_of_buffer_drops", "packets dropped for want of a receive request"),
    ("out_of_sequence", "out_of_sequence_packets_received", "packets out of their order"),
    ("packet_seq_err", "packet_sequence_errors", "answers that packets were missing"),
    ("req_cqe_error", "req_cqes_errors", "requests that ended with an error"),
    ("req_cqe_flush_error", "req_cqes_flush_errors", "requests that were flushed"),
    ("req_remote_access_errors", "req_remote_access_errors", "requests without right of access"),
    ("req_remote_invalid_request", "req_remote_invalid_request_errors", "requests not understood"),
    ("resp_cqe_error", "resp_cqes_errors", "responses that ended with an error"),
    ("resp_cqe_flush_error", "resp_cqes_flush_errors", "responses that were flushed"),
    ("resp_local_length_error", "resp_local_length_errors", "messages longer than the buffer"),
    ("resp_remote_access_errors", "resp_remote_access_errors", "accesses of others refused"),
    ("rnr_nak_retry_err", "rnr_nak_retry_packets_received", "answers that the receiver waits"),
    ("roce_adp_retrans", "roce_adp_retransmits", "adaptive retransmissions"),
    ("roce_adp_retrans_to", "roce_adp_retransmits_timeout", "their timeouts"),
    ("roce_slow_restart", "roce_slow_restart_used", "slow restarts used"),
    ("roce_slow_restart_cnps", "roce_slow_restart_cnps", "notifications by slow restart"),
    ("roce_slow_restart_trans", "roce_slow_restart", "changes to slow restart"),
    ("rp_cnp_handled", "rp_cnp_packets_handled", "congestion notifications obeyed"),
    ("rp_cnp_ignored", "rp_cnp_ignored_packets_received", "congestion notifications ignored"),
    ("rx_atomic_requests", "rx_atomic_requests", "ATOMIC requests received"),
    ("rx_dct_connect", "rx_dct_connect_requests", "DCT connections asked for"),
    ("rx_icrc_encapsulated", "rx_icrc_encapsulated_errors", "packets with a wrong checksum"),
    ("rx_read_requests", "rx_read_requests", "READ requests received"),
    ("rx_write_requests", "rx_write_requests", "WRITE requests received"),
)
# Those that a container's own devices have under its name: enough to see traffic, loss, congestion.
_OF_PODS = (
    *("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets"),
    *("port_rcv_errors", "port_rcv_discards", "port_xmit_discards", "port_xmit_wait"),
    *("local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets", "out_of_buffer"),
    *("out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "rp_cnp_handled"),
)
# VKE's names are the files' own, but for these of data and packets.
_OF_VKE = MappingProxyType(
    {
        "np_cnp_sent": "np_cnp_sent",
        "np_ecn_marked_roce_packets": "np_ecn_marked_roce_packets",
        "out_of_sequence": "out_of_sequence",
        "packet_seq_err": "packet_seq_err",
        "implied_nak_seq_err": "implied_nak_seq_err",
        "local_ack_timeout_err": "local_ack_timeout_err",
        "port_rcv_data": "port_data_received_bytes",
        "port_xmit_data": "port_data_transmitted_bytes",
        "port_rcv_packets": "port_packets_received",
        "port_xmit_packets": "port_packets_transmitted",
    }
)
HARDWARE = frozenset(row[0] for row in _HARDWARE)
LIFESPAN = "lifespan"  # a file beside the hardware's counters, in milliseconds


def _of_ports(
    beginning: str, labels: tuple[str, ...], rows: tuple[tuple[str, str, str], ...]
) -> Mapping[str, MetricFamily]:
    """Families of counters, by the file of each."""
    return MappingProxyType(
        {
            file: MetricFamily(
                f"{beginning}{name}_total",
                MetricKind.COUNTER,
                labels,
                f"{meaning[0].upper()}{meaning[1:]}.",
                f"`{_folder_of(file, name)}/{file}`",
            )
            for file, name, meaning in rows
        }
    )


def _folder_of(file: str, name: str) -> str:
    if file in HARDWARE:
        return "hw_counters"
    return "counters_ext" if name.startswith("legacy_") else "counters"


def _chosen(names: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    rows = {row[0]: row for row in (*_COUNTERS, *_HARDWARE)}
    return tuple((file, name, rows[file][2]) for file, name in names.items())


_NODE_NAMES = {row[0]: row[1] for row in (*_COUNTERS, *_HARDWARE)}
OF_NODE = _of_ports(NODE, PORT, (*_COUNTERS, *_HARDWARE))
OF_VKE = _of_ports(VKE, PORT, _chosen(_OF_VKE))
OF_POD = _of_ports(
    f"{OWN}pod_", (*HOLDER, *PORT), _chosen({file: _NODE_NAMES[file] for file in _OF_PODS})
)


def _gauge(name: str, labels: tuple[str, ...], meaning: str, source: str) -> MetricFamily:
    return MetricFamily(name, MetricKind.GAUGE, labels, meaning, source)


def _counter(name: str, labels: tuple[str, ...], meaning: str, source: str) -> MetricFamily:
    return MetricFamily(f"{name}_total", MetricKind.COUNTER, labels, meaning, source)


INFO = _gauge(
    f"{NODE}info",
    ("device", "board_id", "firmware_version", "hca_type"),
    "The value is 1, for a device with what its files say of it.",
    "`board_id`, `fw_ver`, `hca_type`",
)
STATE = _gauge(
    f"{NODE}state_id",
    PORT,
    "State of the port: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active deferred.",
    "`state`",
)
PHYSICAL_STATE = _gauge(
    f"{NODE}physical_state_id",
    PORT,
    "Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 recovery.",
    "`phys_state`",
)
RATE = _gauge(
    f"{NODE}rate_bytes_per_second", PORT, "Rate of the port's link, in bytes a second.", "`rate`"
)
LIFESPAN_SECONDS = _gauge(
    f"{NODE}lifespan_seconds",
    PORT,
    "For how long the hardware's counters are kept, in whole seconds.",
    "`hw_counters/lifespan`",
)
HW_COUNTER = MetricFamily(
    f"{OWN}hw_stat",
    MetricKind.UNTYPED,
    (*PORT, "counter"),
    "A counter of the driver that has no name above; its unit is the driver's.",
    "other files of `hw_counters`",
)
GIDS = _gauge(f"{OWN}port_gids", PORT, "Used entries of the port's GID table.", "`gids`")

POD_STATE = _gauge(
    f"{OWN}pod_state_id", (*HOLDER, *PORT), "State of the port, as of the node's.", "`state`"
)
POD_RATE = _gauge(
    f"{OWN}pod_rate_bytes_per_second",
    (*HOLDER, *PORT),
    "Rate of the port's link, in bytes a second.",
    "`rate`",
)
POD_HW_COUNTER = MetricFamily(
    f"{OWN}pod_hw_stat",
    MetricKind.UNTYPED,
    (*HOLDER, *PORT, "counter"),
    "A counter of the driver that has no name of the node's above; its unit is the driver's.",
    "other files of `hw_counters`",
)
POD_SHARES = _gauge(
    f"{OWN}pod_shares",
    (*HOLDER, "resource"),
    "Shares of the resource that the container holds.",
    "the kubelet's pod resources",
)
POD_DEVICE = _gauge(
    f"{OWN}pod_device_info",
    (*HOLDER, "resource", "card", "device", "access"),
    "The value is 1, for a device of the container; access is own, or shared with others.",
    "pod resources, pools, attachments",
)
POOL_DEVICE = _gauge(
    f"{OWN}resource_device_info",
    ("resource", "card", "device"),
    "The value is 1, for a device that shares of the resource may stand for.",
    "pools",
)
SHARES = _gauge(
    f"{OWN}resource_shares", ("resource",), "Shares that the kubelet is offered.", "pools"
)
HEALTHY_SHARES = _gauge(
    f"{OWN}resource_shares_healthy", ("resource",), "Those of them that are healthy.", "pools"
)
USED_SHARES = _gauge(
    f"{OWN}resource_shares_in_use",
    ("resource",),
    "Shares that containers hold.",
    "the kubelet's pod resources",
)
CARD_HEALTHY = _gauge(
    f"{OWN}card_healthy",
    ("card", "name", "resource"),
    "1 when the card can be given away, else 0; pods that hold it keep it.",
    "pools",
)
HEALTH_CHANGES = _counter(
    f"{OWN}card_health_changes",
    ("card", "healthy"),
    "How often a card was found healthy or unhealthy after it was seen first.",
    "the agent's looks",
)
ATTACH = MetricFamily(
    f"{OWN}attach_duration_seconds",
    MetricKind.HISTOGRAM,
    ("operation", "outcome"),
    "How long CNI calls of pods took: add, delete, check.",
    "the agent",
)
IPAM = MetricFamily(
    f"{OWN}ipam_duration_seconds",
    MetricKind.HISTOGRAM,
    ("outcome",),
    "How long a pod's addresses took, those of all its interfaces at once.",
    "the agent",
)
LATE_BINDING = MetricFamily(
    f"{OWN}late_binding_duration_seconds",
    MetricKind.HISTOGRAM,
    ("outcome",),
    "How long it took to bind a pod's devices to what was attached.",
    "the agent",
)
BUILD = _gauge(
    f"{OWN}build_info", ("version",), "The value is 1, for the agent's version.", "the agent"
)
SCRAPE_SECONDS = _gauge(
    f"{OWN}scrape_duration_seconds", (), "How long reading took for this answer.", "the agent"
)
UNREAD = _gauge(
    f"{OWN}scrape_unread_files",
    (),
    "Files of counters that could not be read or understood for this answer.",
    "the agent",
)
UNENTERED = _gauge(
    f"{OWN}scrape_unread_pods",
    (),
    "Namespaces of pods that could not be read for this answer.",
    "the agent",
)
HOLDERS_KNOWN = _gauge(
    f"{OWN}scrape_holders_known",
    (),
    "1 when the kubelet said who holds what, else 0: then series of pods are missing.",
    "the kubelet's pod resources",
)
PART_FAILURES = _counter(
    f"{OWN}part_failures",
    ("part",),
    "How often a part of the agent failed and was begun anew, such as `CNI call`; its log has why.",
    "the agent",
)
CPU = _counter("process_cpu_seconds", (), "CPU time of the agent.", "/proc")
MEMORY = _gauge("process_resident_memory_bytes", (), "Resident memory of the agent.", "/proc")
VIRTUAL = _gauge("process_virtual_memory_bytes", (), "Virtual memory of the agent.", "/proc")
START = _gauge("process_start_time_seconds", (), "When the agent started, in Unix time.", "/proc")
OPEN_FILES = _gauge("process_open_fds", (), "Open files of the agent.", "/proc")
MOST_FILES = _gauge("process_max_fds", (), "How many files it may have open.", "/proc")

NODE_FAMILIES = (INFO, STATE, PHYSICAL_STATE, RATE, LIFESPAN_SECONDS, *OF_NODE.values())
VKE_FAMILIES = tuple(OF_VKE.values())
PORT_FAMILIES = (HW_COUNTER, GIDS)
POD_FAMILIES = (
    *(POD_SHARES, POD_DEVICE, POD_STATE, POD_RATE),
    *OF_POD.values(),
    POD_HW_COUNTER,
)
RESOURCE_FAMILIES = (SHARES, HEALTHY_SHARES, USED_SHARES, POOL_DEVICE, CARD_HEALTHY, HEALTH_CHANGES)
DURATION_FAMILIES = (ATTACH, IPAM, LATE_BINDING)
SELF_FAMILIES = (
    *(BUILD, SCRAPE_SECONDS, UNREAD, UNENTERED, HOLDERS_KNOWN, PART_FAILURES),
    *(CPU, MEMORY, VIRTUAL, START, OPEN_FILES, MOST_FILES),
)
FAMILIES = (
    *(*NODE_FAMILIES, *VKE_FAMILIES, *PORT_FAMILIES, *POD_FAMILIES),
    *(*RESOURCE_FAMILIES, *DURATION_FAMILIES, *SELF_FAMILIES),
)
