"""What the kernel's counters of a port count, a sentence for each file: HELP of their families.

By Documentation/ABI/stable/sysfs-class-infiniband of the kernel, those of hw_counters by NVIDIA's
"Understanding mlx5 Linux Counters", which node_exporter has too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_OLD = "from a file of kernels before 4.5"

OF_FILES: Mapping[str, str] = MappingProxyType(
    {
        "excessive_buffer_overrun_errors": (
            "Number of times that the receive buffer overran in several flow control periods in a "
            "row."
        ),
        "link_downed": "Number of times that the link failed to recover from errors and went down.",
        "link_error_recovery": "Number of times that the link recovered from errors.",
        "local_link_integrity_errors": (
            "Number of times that local physical errors exceeded their threshold (LocalPhyErrors)."
        ),
        "multicast_rcv_packets": "Number of multicast packets received, also those with errors.",
        "multicast_xmit_packets": "Number of multicast packets sent, also those with errors.",
        "port_rcv_constraint_errors": (
            "Number of packets received and discarded because of a filter, the partition or the IP "
            "version."
        ),
        "port_xmit_constraint_errors": (
            "Number of packets not sent because of a filter, the partition or the IP version."
        ),
        "port_rcv_data": "Number of bytes received; the file counts words of 4 bytes.",
        "port_xmit_data": "Number of bytes sent; the file counts words of 4 bytes.",
        "port_rcv_discards": (
            "Number of packets received and discarded because the port was down or congested."
        ),
        "port_xmit_discards": (
            "Number of packets discarded instead of sent because the port was down or congested."
        ),
        "port_rcv_errors": "Number of packets received with an error.",
        "port_rcv_packets": "Number of packets received, also those with errors.",
        "port_xmit_packets": "Number of packets sent, also those with errors.",
        "port_rcv_remote_physical_errors": (
            "Number of packets received with the mark that ends a bad packet (EBP)."
        ),
        "port_rcv_switch_relay_errors": (
            "Number of packets received and discarded because the switch could not forward them."
        ),
        "port_xmit_wait": "Number of ticks in which the port had data to send and sent none.",
        "symbol_error": "Number of minor link errors on the physical lanes.",
        "unicast_rcv_packets": "Number of unicast packets received, also those with errors.",
        "unicast_xmit_packets": "Number of unicast packets sent, also those with errors.",
        "VL15_dropped": (
            "Number of management packets (VL15) received and dropped for lack of resources."
        ),
        "port_multicast_rcv_packets": f"Number of multicast packets received, {_OLD}.",
        "port_multicast_xmit_packets": f"Number of multicast packets sent, {_OLD}.",
        "port_rcv_data_64": f"Number of bytes received, {_OLD}, which counts words of 4 bytes.",
        "port_rcv_packets_64": f"Number of packets received, {_OLD}.",
        "port_unicast_rcv_packets": f"Number of unicast packets received, {_OLD}.",
        "port_unicast_xmit_packets": f"Number of unicast packets sent, {_OLD}.",
        "port_xmit_data_64": f"Number of bytes sent, {_OLD}, which counts words of 4 bytes.",
        "port_xmit_packets_64": f"Number of packets sent, {_OLD}.",
        # Of the hardware.
        "duplicate_request": "Number of requests received that had been executed before.",
        "implied_nak_seq_err": (
            "Number of acknowledgements received with a higher packet number (PSN) than the "
            "requester expected."
        ),
        "local_ack_timeout_err": (
            "Number of times that an acknowledgement did not come in time and the sender could "
            "still try again."
        ),
        "np_cnp_sent": (
            "Number of congestion notification packets (CNP) sent because packets came with an ECN "
            "mark."
        ),
        "np_ecn_marked_roce_packets": "Number of RoCE packets received with an ECN mark.",
        "out_of_buffer": (
            "Number of packets dropped because the program had no receive request (WQE) posted."
        ),
        "out_of_sequence": "Number of packets received out of order.",
        "packet_seq_err": (
            "Number of negative acknowledgements received because packets were missing at the peer."
        ),
        "req_cqe_error": "Number of completions (CQE) with an error on the requester's side.",
        "req_cqe_flush_error": "Number of flushed completions (CQE) on the requester's side.",
        "req_remote_access_errors": (
            "Number of requests that the peer refused because of a memory access error."
        ),
        "req_remote_invalid_request": "Number of requests that the peer refused as invalid.",
        "resp_cqe_error": "Number of completions (CQE) with an error on the responder's side.",
        "resp_cqe_flush_error": "Number of flushed completions (CQE) on the responder's side.",
        "resp_local_length_error": "Number of length errors on the responder's side.",
        "resp_remote_access_errors": (
            "Number of requests of peers with a memory access error on the responder's side."
        ),
        "rnr_nak_retry_err": (
            "Number of answers received which say that the peer was not ready to receive (RNR NAK)."
        ),
        "roce_adp_retrans": "Number of adaptive retransmissions of RoCE traffic.",
        "roce_adp_retrans_to": (
            "Number of times that RoCE traffic reached a timeout because of adaptive "
            "retransmission."
        ),
        "roce_slow_restart": "Number of times that RoCE slow restart was used.",
        "roce_slow_restart_cnps": (
            "Number of times that RoCE slow restart generated congestion notification packets "
            "(CNP)."
        ),
        "roce_slow_restart_trans": "Number of times that RoCE changed its state to slow restart.",
        "rp_cnp_handled": (
            "Number of congestion notification packets (CNP) received after which the card sent "
            "more slowly."
        ),
        "rp_cnp_ignored": ("Number of congestion notification packets (CNP) received and ignored."),
        "rx_atomic_requests": "Number of ATOMIC requests received.",
        "rx_dct_connect": "Number of connection requests received for DC targets (DCT).",
        "rx_icrc_encapsulated": "Number of RoCE packets received with a wrong checksum (ICRC).",
        "rx_read_requests": "Number of RDMA READ requests received.",
        "rx_write_requests": "Number of RDMA WRITE requests received.",
    }
)
