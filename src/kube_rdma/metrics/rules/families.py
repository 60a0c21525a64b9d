"""Every family that agents and controllers export: THE table, which docs/metrics.md shows.

Names, types and units of ``node_infiniband_*`` are node_exporter's (collector/infiniband_linux.go,
with sysfs/class_infiniband.go of procfs), so that its dashboards and alerts go on working. Names of
``rdma_exporter_node_infiniband_*`` are VKE's. A new family is added here. `meaning` is its HELP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_rdma.model.metrics import MetricFamily, MetricKind

# What the kernel counts in a port, by file: the HELP of its family is "Number of" it.

_OLD = "from a file of kernels before 4.5"

OF_FILES: Mapping[str, str] = {
    "excessive_buffer_overrun_errors": (
        "times that the receive buffer overran for several flow control periods."
    ),
    "link_downed": "times that the link failed to recover from errors and went down.",
    "link_error_recovery": "times that the link recovered from errors.",
    "local_link_integrity_errors": (
        "times that local physical errors exceeded their threshold (LocalPhyErrors)."
    ),
    "multicast_rcv_packets": "multicast packets received.",
    "multicast_xmit_packets": "multicast packets sent.",
    "port_rcv_constraint_errors": "received packets refused by filter, partition or IP version.",
    "port_xmit_constraint_errors": "packets not sent: refused by filter, partition or IP version.",
    "port_rcv_data": "bytes received; the file counts words of 4 bytes.",
    "port_xmit_data": "bytes sent; the file counts words of 4 bytes.",
    "port_rcv_discards": "packets received and discarded because the port was down or congested.",
    "port_xmit_discards": "packets not sent because the port was down or congested.",
    "port_rcv_errors": "packets received with an error.",
    "port_rcv_packets": "packets received.",
    "port_xmit_packets": "packets sent.",
    "port_rcv_remote_physical_errors": (
        "packets received with the mark that ends a bad packet (EBP)."
    ),
    "port_rcv_switch_relay_errors": (
        "packets received and discarded because the switch could not forward them."
    ),
    "port_xmit_wait": "ticks in which the port had data to send and sent none.",
    "symbol_error": "minor link errors on the physical lanes.",
    "unicast_rcv_packets": "unicast packets received.",
    "unicast_xmit_packets": "unicast packets sent.",
    "VL15_dropped": "management packets (VL15) received and dropped for lack of resources.",
    "port_multicast_rcv_packets": f"multicast packets received, {_OLD}.",
    "port_multicast_xmit_packets": f"multicast packets sent, {_OLD}.",
    "port_rcv_data_64": f"bytes received, {_OLD}, which counts words of 4 bytes.",
    "port_rcv_packets_64": f"packets received, {_OLD}.",
    "port_unicast_rcv_packets": f"unicast packets received, {_OLD}.",
    "port_unicast_xmit_packets": f"unicast packets sent, {_OLD}.",
    "port_xmit_data_64": f"bytes sent, {_OLD}, which counts words of 4 bytes.",
    "port_xmit_packets_64": f"packets sent, {_OLD}.",
    # Of the hardware.
    "duplicate_request": "requests received that had been executed before.",
    "implied_nak_seq_err": "acknowledgements received with a higher number (PSN) than expected.",
    "local_ack_timeout_err": "times that an acknowledgement was late; the sender could try again.",
    "np_cnp_sent": "congestion notification packets (CNP) sent after packets with an ECN mark.",
    "np_ecn_marked_roce_packets": "RoCE packets received with an ECN mark.",
    "out_of_buffer": "packets dropped because no receive request (WQE) was posted.",
    "out_of_sequence": "packets received out of order.",
    "packet_seq_err": "negative acknowledgements received: the peer missed packets.",
    "req_cqe_error": "completions (CQE) with an error on the requester's side.",
    "req_cqe_flush_error": "flushed completions (CQE) on the requester's side.",
    "req_remote_access_errors": "requests that the peer refused for a memory access error.",
    "req_remote_invalid_request": "requests that the peer refused as invalid.",
    "resp_cqe_error": "completions (CQE) with an error on the responder's side.",
    "resp_cqe_flush_error": "flushed completions (CQE) on the responder's side.",
    "resp_local_length_error": "length errors on the responder's side.",
    "resp_remote_access_errors": "requests of peers with a memory access error.",
    "rnr_nak_retry_err": "answers that the peer was not ready to receive (RNR NAK).",
    "roce_adp_retrans": "adaptive retransmissions of RoCE traffic.",
    "roce_adp_retrans_to": "timeouts of RoCE traffic by adaptive retransmission.",
    "roce_slow_restart": "times that RoCE slow restart was used.",
    "roce_slow_restart_cnps": "times that RoCE slow restart generated CNP.",
    "roce_slow_restart_trans": "times that RoCE changed its state to slow restart.",
    "rp_cnp_handled": "CNP received after which the card sent more slowly.",
    "rp_cnp_ignored": "CNP received and ignored.",
    "rx_atomic_requests": "ATOMIC requests received.",
    "rx_dct_connect": "connection requests received for DC targets (DCT).",
    "rx_icrc_encapsulated": "RoCE packets received with a wrong checksum (ICRC).",
    "rx_read_requests": "RDMA READ requests received.",
    "rx_write_requests": "RDMA WRITE requests received.",
}


PORT = ("device", "port")
HOLDER = ("namespace", "pod", "container")
NODE, VKE, OWN = "node_infiniband_", "rdma_exporter_node_infiniband_", "kube_rdma_"
FACTOR = 4  # files of data count words of 32 bits (InfiniBand specification, PortCounters)
Table = Mapping[str, MetricFamily]
"""Families by the file that their values are read from."""

DATA = frozenset({"port_rcv_data", "port_xmit_data", "port_rcv_data_64", "port_xmit_data_64"})

# Counters of a port: file, node_exporter's name without its beginning.
_COUNTERS = (
    ("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors"),
    ("link_downed", "link_downed"),
    ("link_error_recovery", "link_error_recovery"),
    ("local_link_integrity_errors", "local_link_integrity_errors"),
    ("multicast_rcv_packets", "multicast_packets_received"),
    ("multicast_xmit_packets", "multicast_packets_transmitted"),
    ("port_rcv_constraint_errors", "port_constraint_errors_received"),
    ("port_xmit_constraint_errors", "port_constraint_errors_transmitted"),
    ("port_rcv_data", "port_data_received_bytes"),
    ("port_xmit_data", "port_data_transmitted_bytes"),
    ("port_rcv_discards", "port_discards_received"),
    ("port_xmit_discards", "port_discards_transmitted"),
    ("port_rcv_errors", "port_errors_received"),
    ("port_rcv_packets", "port_packets_received"),
    ("port_xmit_packets", "port_packets_transmitted"),
    ("port_rcv_remote_physical_errors", "port_receive_remote_physical_errors"),
    ("port_rcv_switch_relay_errors", "port_receive_switch_relay_errors"),
    ("port_xmit_wait", "port_transmit_wait"),
    ("symbol_error", "symbol_error"),
    ("unicast_rcv_packets", "unicast_packets_received"),
    ("unicast_xmit_packets", "unicast_packets_transmitted"),
    ("VL15_dropped", "vl15_dropped"),
    # The folder counters_ext, of kernels before 4.5.
    ("port_multicast_rcv_packets", "legacy_multicast_packets_received"),
    ("port_multicast_xmit_packets", "legacy_multicast_packets_transmitted"),
    ("port_rcv_data_64", "legacy_data_received_bytes"),
    ("port_rcv_packets_64", "legacy_packets_received"),
    ("port_unicast_rcv_packets", "legacy_unicast_packets_received"),
    ("port_unicast_xmit_packets", "legacy_unicast_packets_transmitted"),
    ("port_xmit_data_64", "legacy_data_transmitted_bytes"),
    ("port_xmit_packets_64", "legacy_packets_transmitted"),
)
# Counters of the hardware that node_exporter has names for.
_HARDWARE = (
    ("duplicate_request", "duplicate_requests_packets"),
    ("implied_nak_seq_err", "implied_nak_seq_errors"),
    ("local_ack_timeout_err", "local_ack_timeout_errors"),
    ("np_cnp_sent", "np_cnp_packets_sent"),
    ("np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets_received"),
    ("out_of_buffer", "out_of_buffer_drops"),
    ("out_of_sequence", "out_of_sequence_packets_received"),
    ("packet_seq_err", "packet_sequence_errors"),
    ("req_cqe_error", "req_cqes_errors"),
    ("req_cqe_flush_error", "req_cqes_flush_errors"),
    ("req_remote_access_errors", "req_remote_access_errors"),
    ("req_remote_invalid_request", "req_remote_invalid_request_errors"),
    ("resp_cqe_error", "resp_cqes_errors"),
    ("resp_cqe_flush_error", "resp_cqes_flush_errors"),
    ("resp_local_length_error", "resp_local_length_errors"),
    ("resp_remote_access_errors", "resp_remote_access_errors"),
    ("rnr_nak_retry_err", "rnr_nak_retry_packets_received"),
    ("roce_adp_retrans", "roce_adp_retransmits"),
    ("roce_adp_retrans_to", "roce_adp_retransmits_timeout"),
    ("roce_slow_restart", "roce_slow_restart_used"),
    ("roce_slow_restart_cnps", "roce_slow_restart_cnps"),
    ("roce_slow_restart_trans", "roce_slow_restart"),
    ("rp_cnp_handled", "rp_cnp_packets_handled"),
    ("rp_cnp_ignored", "rp_cnp_ignored_packets_received"),
    ("rx_atomic_requests", "rx_atomic_requests"),
    ("rx_dct_connect", "rx_dct_connect_requests"),
    ("rx_icrc_encapsulated", "rx_icrc_encapsulated_errors"),
    ("rx_read_requests", "rx_read_requests"),
    ("rx_write_requests", "rx_write_requests"),
)
# Counters of a container's own devices, under its name: enough to see traffic, loss, congestion.
_OF_PODS = (
    *("port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets"),
    *("port_rcv_errors", "port_rcv_discards", "port_xmit_discards", "port_xmit_wait"),
    *("local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets", "out_of_buffer"),
    *("out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "rp_cnp_handled"),
)
# VKE's names are the files' own, but for these of data and packets.
_SAME = (
    *("np_cnp_sent", "np_ecn_marked_roce_packets", "out_of_sequence", "packet_seq_err"),
    *("implied_nak_seq_err", "local_ack_timeout_err"),
)
_OF_VKE = dict(zip(_SAME, _SAME, strict=True)) | {
    "port_rcv_data": "port_data_received_bytes",
    "port_xmit_data": "port_data_transmitted_bytes",
    "port_rcv_packets": "port_packets_received",
    "port_xmit_packets": "port_packets_transmitted",
}
HARDWARE = frozenset(row[0] for row in _HARDWARE)
LIFESPAN = "lifespan"  # a file beside the hardware's counters, in milliseconds


def _gauge(name: str, labels: tuple[str, ...], meaning: str, source: str) -> MetricFamily:
    return MetricFamily(name, MetricKind.GAUGE, labels, meaning, source)


def _own(
    name: str, meaning: str, source: str = "the agent", labels: tuple[str, ...] = ()
) -> MetricFamily:
    return _gauge(f"{OWN}{name}", labels, meaning, source)


def _durations(name: str, meaning: str, *labels: str) -> MetricFamily:
    name = f"{OWN}{name}_duration_seconds"
    return MetricFamily(name, MetricKind.HISTOGRAM, (*labels, "outcome"), meaning, "the agent")


def _of_drivers(name: str, labels: tuple[str, ...]) -> MetricFamily:
    meaning = (
        "Counter of the driver, in its unit, that has no metric of its own; label counter names it."
    )
    source = "other files of `hw_counters`"
    return MetricFamily(f"{OWN}{name}", MetricKind.UNTYPED, (*labels, "counter"), meaning, source)


def _counter(name: str, labels: tuple[str, ...], meaning: str, source: str) -> MetricFamily:
    return MetricFamily(f"{name}_total", MetricKind.COUNTER, labels, meaning, source)


def _of_ports(
    beginning: str, labels: tuple[str, ...], rows: Iterable[tuple[str, str]]
) -> Mapping[str, MetricFamily]:
    """Return the metric families of port counters, by the name of the counter's file.

    `beginning` begins their names; `rows` are files and the rest of the names.
    """
    families = {}
    for file, name in rows:
        folder = "counters_ext" if name.startswith("legacy_") else "counters"
        source = f"`{'hw_counters' if file in HARDWARE else folder}/{file}`"
        meaning = f"Number of {OF_FILES[file]}"
        families[file] = _counter(f"{beginning}{name}", labels, meaning, source)
    return families


_NODE_NAMES = dict((*_COUNTERS, *_HARDWARE))
OF_NODE = _of_ports(NODE, PORT, _NODE_NAMES.items())
OF_VKE = _of_ports(VKE, PORT, _OF_VKE.items())
OF_POD = _of_ports(f"{OWN}pod_", (*HOLDER, *PORT), [(file, _NODE_NAMES[file]) for file in _OF_PODS])


_STATES = (
    "State of the port as a number: 0 no change, 1 down, 2 init, 3 armed, 4 active, 5 active "
    "deferred."
)
_RATES = "Rate of the port's link in bytes per second."
INFO = _gauge(
    f"{NODE}info",
    ("device", "board_id", "firmware_version", "hca_type"),
    "The value is 1; the labels name board, firmware and type of the device.",
    "`board_id`, `fw_ver`, `hca_type`",
)
STATE = _gauge(f"{NODE}state_id", PORT, _STATES, "`state`")
PHYSICAL_STATE = _gauge(
    f"{NODE}physical_state_id",
    PORT,
    "Physical port state as a number: 0 no change, 1 sleep, 2 polling, 3 disabled, "
    "4 training, 5 up, 6 error recovery, 7 test.",
    "`phys_state`",
)
RATE = _gauge(f"{NODE}rate_bytes_per_second", PORT, _RATES, "`rate`")
LIFESPAN_SECONDS = _gauge(
    f"{NODE}lifespan_seconds",
    PORT,
    "Seconds for which the kernel repeats hardware counters that it read before.",
    "`hw_counters/lifespan`",
)
HW_COUNTER = _of_drivers("hw_stat", PORT)
GIDS = _own("port_gids", "Number of used entries in the GID table of the port.", "`gids`", PORT)
# drivers/pci/pci-sysfs.c: current_link_width, max_link_width, current_link_speed, max_link_speed.
PCIE_LANES = _own(
    "pcie_lanes",
    "Number of PCIe lanes that the link of the device's card uses now.",
    "`device/current_link_width`",
    ("device",),
)
PCIE_MOST_LANES = _own(
    "pcie_most_lanes",
    "Number of PCIe lanes that the device's card and the port above it can both use.",
    "`device/max_link_width`",
    ("device",),
)
PCIE_SPEED = _own(
    "pcie_transfers_per_second",
    "Speed of a PCIe lane of the device's card now in transfers per second.",
    "`device/current_link_speed`",
    ("device",),
)
PCIE_MOST_SPEED = _own(
    "pcie_most_transfers_per_second",
    "Speed in transfers per second of a PCIe lane that the card and the port above can both reach.",
    "`device/max_link_speed`",
    ("device",),
)

POD_STATE = _own("pod_state_id", _STATES, "`state`", (*HOLDER, *PORT))
POD_RATE = _own("pod_rate_bytes_per_second", _RATES, "`rate`", (*HOLDER, *PORT))
POD_HW_COUNTER = _of_drivers("pod_hw_stat", (*HOLDER, *PORT))
POD_SHARES = _own(
    "pod_shares",
    "Number of shares of the resource that the container holds.",
    "the kubelet's pod resources",
    (*HOLDER, "resource"),
)
POD_DEVICE = _own(
    "pod_device_info",
    "The value is 1, for a device of the container; label access is own or shared; label "
    "resource may be the driver of a claim.",
    "pod resources, pools, attachments, ResourceSlices",
    (*HOLDER, "resource", "card", "device", "access"),
)
POD_OBJECTS = _own(
    "pod_rdma_objects",
    "Number of objects (queue pairs, regions and all others) of a pod with rdmaLimits.hcaObject.",
    "`rdma.current` of its control group",
    ("namespace", "pod", "device"),
)
POD_MOST_OBJECTS = _own(
    "pod_rdma_objects_limit",
    "Number of objects that the kernel lets the pod have on the device.",
    "`rdma.max` of its control group",
    ("namespace", "pod", "device"),
)
POOL_DEVICE = _own(
    "resource_device_info",
    "The value is 1, for a device that shares of the resource may stand for.",
    "pools",
    ("resource", "card", "device"),
)
SHARES = _own(
    "resource_shares",
    "Number of shares of the resource that the agent offers to the kubelet.",
    "pools",
    ("resource",),
)
HEALTHY_SHARES = _own(
    "resource_shares_healthy",
    "Number of offered shares of the resource that are healthy.",
    "pools",
    ("resource",),
)
USED_SHARES = _own(
    "resource_shares_in_use",
    "Number of shares of the resource that containers hold.",
    "the kubelet's pod resources",
    ("resource",),
)
CARD_HEALTHY = _own(
    "card_healthy",
    "The value is 1 when the card is healthy and allocatable, else 0.",
    "pools",
    ("card", "name", "resource"),
)
HEALTH_CHANGES = _counter(
    f"{OWN}card_health_changes",
    ("card", "healthy"),
    "Number of times that the card became healthy (label healthy: true) or unhealthy.",
    "the agent's looks",
)
ATTACH = _durations(
    "attach",
    "Duration of CNI calls to the agent in seconds; label operation is add, delete or check.",
    "operation",
)
IPAM = _durations(
    "ipam", "Time in seconds to get the addresses of a pod, for all of its interfaces at once."
)
LATE_BINDING = _durations(
    "late_binding",
    "Time in seconds to bind the shares of a pod to the devices that were attached to it.",
)
BUILD = _own(
    "build_info", "The value is 1; label version is the agent's version.", labels=("version",)
)
SCRAPE_SECONDS = _own("scrape_duration_seconds", "Time in seconds to read this answer's counters.")
UNREAD = _own(
    "scrape_unread_files",
    "Number of counter files that the agent could not read or understand for this answer.",
)
UNENTERED = _own(
    "scrape_unread_pods",
    "Number of network namespaces of pods that the agent could not read for this answer.",
)
HOLDERS_KNOWN = _own(
    "scrape_holders_known",
    "The value is 1 when holders of shares are known, else 0: then containers have no metrics.",
    "the kubelet's pod resources",
)
PART_FAILURES = _counter(
    f"{OWN}part_failures",
    ("part",),
    "Number of times that a part of the agent, such as `CNI call`, failed; the log says why.",
    "the agent",
)
OBJECT_FAILURES = _counter(
    f"{OWN}object_failures",
    ("kind",),
    "Number of times that an object, such as an `IPPool`, could not be handled; the log says why.",
    "the agent and the controller",
)
CONTROLLER_LEADS = _own(
    "controller_leads",
    "The value is 1 when this copy of the controller leads, else 0.",
    "the controller",
)
POOL_ADDRESSES = _own(
    "ip_pool_addresses",
    "Number of addresses of the IPPool, of one IP version and rail; rail is empty without rails.",
    "the controller that leads",
    ("pool", "family", "rail"),
)
POOL_HELD = _own(
    "ip_pool_addresses_held",
    "Number of addresses of the IPPool that nodes hold, for pods or in reserve.",
    "the controller that leads",
    ("pool", "family", "rail"),
)
CPU = _counter("process_cpu_seconds", (), "CPU time that the agent has used, in seconds.", "/proc")
MEMORY = _gauge(
    "process_resident_memory_bytes", (), "Resident memory of the agent in bytes.", "/proc"
)
VIRTUAL = _gauge(
    "process_virtual_memory_bytes", (), "Virtual memory of the agent in bytes.", "/proc"
)
START = _gauge(
    "process_start_time_seconds",
    (),
    "Start of the agent in seconds since 1970 (Unix time).",
    "/proc",
)
OPEN_FILES = _gauge("process_open_fds", (), "Number of files that the agent has open.", "/proc")
MOST_FILES = _gauge("process_max_fds", (), "Number of files that the agent may have open.", "/proc")

NODE_FAMILIES = (INFO, STATE, PHYSICAL_STATE, RATE, LIFESPAN_SECONDS, *OF_NODE.values())
VKE_FAMILIES = tuple(OF_VKE.values())
PORT_FAMILIES = (HW_COUNTER, GIDS)
PCIE_FAMILIES = (PCIE_LANES, PCIE_MOST_LANES, PCIE_SPEED, PCIE_MOST_SPEED)
POD_FAMILIES = (
    *(POD_SHARES, POD_DEVICE, POD_OBJECTS, POD_MOST_OBJECTS, POD_STATE, POD_RATE),
    *OF_POD.values(),
    POD_HW_COUNTER,
)
RESOURCE_FAMILIES = (SHARES, HEALTHY_SHARES, USED_SHARES, POOL_DEVICE, CARD_HEALTHY, HEALTH_CHANGES)
DURATION_FAMILIES = (ATTACH, IPAM, LATE_BINDING)
SELF_FAMILIES = (
    *(BUILD, SCRAPE_SECONDS, UNREAD, UNENTERED, HOLDERS_KNOWN, PART_FAILURES, OBJECT_FAILURES),
    *(CPU, MEMORY, VIRTUAL, START, OPEN_FILES, MOST_FILES),
)
CONTROLLER_FAMILIES = (CONTROLLER_LEADS, POOL_ADDRESSES, POOL_HELD)
FAMILIES = (
    *(*NODE_FAMILIES, *VKE_FAMILIES, *PORT_FAMILIES, *PCIE_FAMILIES, *POD_FAMILIES),
    *(*RESOURCE_FAMILIES, *DURATION_FAMILIES, *SELF_FAMILIES, *CONTROLLER_FAMILIES),
)
