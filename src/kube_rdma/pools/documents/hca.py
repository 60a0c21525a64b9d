"""Reads the dialect ``{"mode": "hca"}``: config.json of the SCC document and of plugin v0.1.0.

The SCC ConfigMap (`rdma-devices`, key config.json) holds nothing but the mode. The field
hostNetwork is kube-rdma's own: it says that pods use the host's network, as the ACK document
demands. Shares are called 0, 1, … as by the shared device plugin v0.1.0 (server.go of
k8s-rdma-sriov-dev-plugin). So either takes over a node from the other.
"""

from __future__ import annotations

from typing import Literal

from kube_rdma.lib.text.document import Document
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.typed import Config, Typed
from kube_rdma.model.device import CharKind
from kube_rdma.model.pools import Mode, PoolSpec

RESOURCE = "rdma/hca"


class HcaConfig(Typed):
    """The whole file: every RDMA card of the node, as rdma/hca."""

    mode: Literal["hca"]
    """mode is hca: every RDMA card of the node, as 1000 shares of rdma/hca."""
    host_network: bool = False
    """hostNetwork is true if all pods of the pool have hostNetwork: true. Shares are then healthy
    also in RDMA namespace mode exclusive, where other pods see no shared cards. Left out: false.
    """


def load(document: Document) -> Config:
    """Return the configuration that the document means; raise Refused with all of its faults."""
    config = validate(HcaConfig, document)
    pool = PoolSpec(
        RESOURCE,
        Mode(config.mode),
        document.where(("mode",)),
        device_files=tuple(CharKind),  # as that plugin, which gives all of /dev/infiniband
        host_network=config.host_network,
        bare_ids=True,
    )
    return Config((pool,))
