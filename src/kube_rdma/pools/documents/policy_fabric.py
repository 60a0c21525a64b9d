"""`fabric` of a NodePolicy's pool: what programs on this fabric should use.

Numbers have the ranges of a queue pair's attributes (struct ibv_qp_attr, ibv_modify_qp(3)); that
of queue pairs is NCCL's own (its user guide, NCCL_IB_QPS_PER_CONNECTION).
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from kube_rdma.lib.text.document import shown
from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.typed import Typed
from kube_rdma.model.settings.fabric import FabricProfile

# What kube-rdma writes out of what the container got: from elsewhere it would be wrong.
OWN = ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX")
_NAME = "(NCCL|UCX)_[A-Z0-9_]{1,60}"
_VALUE = "[!-~]([ -~]{0,254}[!-~])?"
_MOST = 32  # variables
_RULES = [
    {
        "rule": f"!has(self.variables) || self.variables.all(k, k.matches('^{_NAME}$') && "
        f"self.variables[k].matches('^{_VALUE}$'))",
        "message": "a variable is of NCCL_ or UCX_, in capitals; its value one line of ASCII",
    },
    {
        "rule": "!has(self.variables) || !self.variables.exists(k, k in "
        f"[{', '.join(repr(name) for name in OWN)}])",
        "message": "devices and GID indexes are each container's own: kube-rdma writes them",
    },
]


def _bounded(schema: dict[str, Any]) -> None:
    """Lengths for the API server, which has to know what its rules may cost."""
    schema["x-kubernetes-validations"] = _RULES
    schema["properties"]["variables"]["maxProperties"] = _MOST
    schema["properties"]["variables"]["additionalProperties"]["maxLength"] = 256


class PolicyFabric(Typed):
    """Settings of NCCL and UCX in containers that hold a share."""

    model_config = ConfigDict(json_schema_extra=_bounded)

    traffic_class: int | None = Field(None, ge=0, le=255, examples=[106])
    """trafficClass is the traffic class of packets; on RoCE it is DSCP times 4. It becomes
    NCCL_IB_TC and UCX_IB_TRAFFIC_CLASS. Left out: each program decides. Example: 106.
    """
    service_level: int | None = Field(None, ge=0, le=15, examples=[3])
    """serviceLevel is the service level (SL) of packets. It becomes NCCL_IB_SL and UCX_IB_SL. Left
    out: each program decides. Example: 3.
    """
    timeout: int | None = Field(None, ge=0, le=31, examples=[22])
    """timeout is the exponent of the time that a sender waits for an acknowledgement: 4.096
    microseconds times 2^timeout. It becomes NCCL_IB_TIMEOUT and, in microseconds, UCX_RC_TIMEOUT.
    Left out: each program decides. Example: 22, about 17 s.
    """
    retry_count: int | None = Field(None, ge=0, le=7, examples=[7])
    """retryCount is how many times a sender tries again without an acknowledgement. It becomes
    NCCL_IB_RETRY_CNT and UCX_RC_RETRY_COUNT. Left out: each program decides. Example: 7.
    """
    qps_per_connection: int | None = Field(None, ge=1, le=128, examples=[4])
    """qpsPerConnection is how many queue pairs NCCL uses for a connection between two ranks. It
    becomes NCCL_IB_QPS_PER_CONNECTION; UCX has no such setting. Left out: NCCL decides. Example: 4.
    """
    variables: dict[str, str] = Field(
        default_factory=dict, examples=[{"NCCL_IB_SPLIT_DATA_ON_QPS": "0"}]
    )
    """variables is a map of at most 32 further variables, whose names begin with NCCL_ or UCX_.
    Variables that name devices or GID indexes are refused, because kube-rdma sets them for each
    container. Left out: none. Example: NCCL_IB_SPLIT_DATA_ON_QPS: "0".
    """

    @field_validator("variables")
    @classmethod
    def _can_be_written(cls, variables: dict[str, str]) -> dict[str, str]:
        faults = [Slip(*fault, (name,)) for name in variables for fault in _faults(name, variables)]
        if len(variables) > _MOST:
            faults.append(Slip(f"these are {len(variables)}", f"Keep {_MOST} at most", ()))
        if faults:
            raise slips(*faults)
        return variables

    def profile(self) -> FabricProfile:
        """What it means."""
        return FabricProfile(
            traffic_class=self.traffic_class,
            service_level=self.service_level,
            timeout=self.timeout,
            retry_count=self.retry_count,
            qps_per_connection=self.qps_per_connection,
            variables=tuple(sorted(self.variables.items())),
        )


def _faults(name: str, variables: dict[str, str]) -> list[tuple[str, str]]:
    """Problem and remedy."""
    if not re.fullmatch(_NAME, name):
        return [(f"{shown(name)} is not a variable of NCCL or UCX", 'Write it like "NCCL_IB_TC"')]
    if name in OWN:
        return [
            (
                f"{name} differs from container to container",
                "Remove it: kube-rdma writes it out of what each one got",
            )
        ]
    if not re.fullmatch(_VALUE, variables[name]):
        return [(f"{shown(variables[name])} is not one line of ASCII", "Write a value of one line")]
    return []
