"""`rdmaLimits` of a NodePolicy's pool: what a share may take of an RDMA device.

The numbers have the kernel's own names (Linux Documentation/admin-guide/cgroup-v2.rst, "RDMA").
"""

from __future__ import annotations

from pydantic import ConfigDict, Field, model_validator

from kube_rdma.lib.text.faults import Slip, slips
from kube_rdma.lib.text.typed import Typed
from kube_rdma.model.pools.rdma_limits import MOST, RdmaLimits


class PolicyLimits(Typed):
    """Limits that the kernel holds, for each share and each RDMA device."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "has(self.hcaHandle) || has(self.hcaObject)",
                    "message": "these limits limit nothing: "
                    "add hcaHandle or hcaObject, or remove rdmaLimits",
                }
            ]
        }
    )

    hca_handle: int | None = Field(None, ge=1, le=MOST, examples=[16])
    """hcaHandle is how many times the programs of a pod may have a device open, for each share.
    Left out: no limit. Example: 16.
    """
    hca_object: int | None = Field(None, ge=1, le=MOST, examples=[20000])
    """hcaObject is how many objects a pod may have on a device, for each share: queue pairs, memory
    regions, completion queues, protection domains and all others, counted together. Left out: no
    limit. Example: 20000.
    """

    @model_validator(mode="after")
    def _limits_something(self) -> PolicyLimits:
        if self.hca_handle is None and self.hca_object is None:
            remedy = "Add hcaHandle or hcaObject, or remove rdmaLimits"
            raise slips(Slip("these limits limit nothing", remedy))
        return self

    def limits(self) -> RdmaLimits:
        """What it means."""
        return RdmaLimits(self.hca_handle, self.hca_object)
