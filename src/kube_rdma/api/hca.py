"""The dialect ``{"mode": "hca"}``: config.json of the SCC document and of shared plugin v0.1.0.

The SCC ConfigMap (`rdma-devices`, key config.json) holds nothing but the mode.
"""

from __future__ import annotations

from typing import Literal

from kube_rdma.api.dialect import Config, Typed
from kube_rdma.api.document import Document
from kube_rdma.api.faults import validate
from kube_rdma.model.pool import Mode, PoolSpec

RESOURCE = "rdma/hca"


class HcaConfig(Typed):
    """The whole file: every RDMA card of the node, as rdma/hca."""

    mode: Literal["hca"]


def load(document: Document) -> Config:
    """What the document means; raise Refused with all of its faults."""
    config = validate(HcaConfig, document)
    return Config((PoolSpec(RESOURCE, Mode(config.mode), source=document.where(("mode",))),))
