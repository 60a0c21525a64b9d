"""`fabric` of a NodePolicy's pool: what programs on this fabric should use.

Numbers have the ranges of a queue pair's attributes (struct ibv_qp_attr, ibv_modify_qp(3)); that
of queue pairs is NCCL's own (its user guide, NCCL_IB_QPS_PER_CONNECTION).
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from kube_rdma.api.dialect import Typed
from kube_rdma.api.document import shown
from kube_rdma.api.faults import Slip, slips
from kube_rdma.model.fabric import FabricProfile

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
    """For programs in containers that hold a share; what is left out, they decide themselves."""

    model_config = ConfigDict(json_schema_extra=_bounded)

    traffic_class: int | None = Field(
        None, ge=0, le=255, description="Of RoCE: DSCP times 4.", examples=[106]
    )
    service_level: int | None = Field(None, ge=0, le=15, examples=[3])
    timeout: int | None = Field(
        None, ge=0, le=31, description="For an answer, 4.096 µs × 2^timeout.", examples=[22]
    )
    retry_count: int | None = Field(None, ge=0, le=7, examples=[7])
    qps_per_connection: int | None = Field(
        None, ge=1, le=128, description="Queue pairs between two GPUs, of NCCL.", examples=[4]
    )
    variables: dict[str, str] = Field(
        default_factory=dict,
        description="Further ones of NCCL and UCX.",
        examples=[{"NCCL_IB_SPLIT_DATA_ON_QPS": "0"}],
    )

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
        return [(f"{shown(name)} is no variable of NCCL or UCX", 'Write it like "NCCL_IB_TC"')]
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
