"""What an administrator says that programs on a fabric should use: classes, timeouts, tuning.

A part of a pool (model/pools/pool), for a pool's cards are ports of one fabric.
pools/documents/policy_fabric reads it, attach/rules/settings/files writes it for the containers
that hold shares.
"""

from __future__ import annotations

from kube_base.frozen import Frozen


class FabricProfile(Frozen):
    """Values by the fields of InfiniBand's queue pairs; None leaves it to the program.

    `traffic_class` is the byte of the IPv6 header (RoCE: DSCP times 4), `service_level` has 4 bits.
    `timeout` is the exponent of an acknowledgement's, 4.096 µs × 2^timeout, tried `retry_count`
    times more. `variables` are further ones of NCCL and UCX by name.
    """

    traffic_class: int | None = None
    service_level: int | None = None
    timeout: int | None = None
    retry_count: int | None = None
    qps_per_connection: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
