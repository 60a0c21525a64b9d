"""The dialect ``{"mode": "hca"}``: config.json of the SCC document and of shared plugin v0.1.0.

Text in, wishes for pools out; programs/agent reads the file, rules/pools meets the wish with the
node. The SCC ConfigMap (`rdma-devices`, key config.json) holds nothing but the mode.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from kube_rdma.api.document import read
from kube_rdma.api.faults import validate
from kube_rdma.model.pool import Mode, PoolSpec


class HcaConfig(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    mode: Literal["hca"]


def parse(data: bytes, source: str) -> tuple[PoolSpec, ...]:
    """The pools that the configuration `data` wishes for; `source` names it in messages.

    Raise Refused with all of its faults.
    """
    document = read(data, source)
    config = validate(HcaConfig, document)
    return (PoolSpec(Mode(config.mode), source=document.where(("mode",))),)
