"""The ResourceSlices of one node and this driver: followed, created, changed and removed.

claims/publisher.py decides by claims/rules/publication what is to be written; each
call here is one request. Names are fixed, so a request that was carried out while its answer got
lost is a Conflict the second time, and no second slice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from kube_base.frozen import Frozen
from kube_client.kinds import Where
from kube_client.objects import Cluster
from kube_client.watching import WatchEvent
from kube_rdma.adapters.cluster.kinds.offered_slice import (
    OFFERED_SLICE,
    OfferedSliceSpec,
    StoredSlice,
    changed_slice,
    wanted_slice,
)
from kube_rdma.model.claims.offered import PublishedSlice


class OfferedSlices(Frozen):
    """The door of one agent: the slices of this driver on the node of this name."""

    cluster: Cluster
    driver: str
    node: str

    def watch(self) -> AsyncGenerator[WatchEvent[OfferedSliceSpec, None], None]:
        """The slices now and whenever they change; raise Refused when the kind is not served."""
        fields = f"spec.driver={self.driver},spec.nodeName={self.node}"
        return self.cluster.watch(OFFERED_SLICE, Where(fields=fields))

    async def create(self, part: PublishedSlice) -> StoredSlice:
        """Create a slice; what comes back is what the server has kept of it."""
        return await self.cluster.create(OFFERED_SLICE, wanted_slice(part, self.driver, self.node))

    async def change(self, stored: StoredSlice, part: PublishedSlice) -> StoredSlice:
        """Replace what a slice says; Conflict when somebody wrote it since it was read."""
        changed = changed_slice(stored, part, self.driver, self.node)
        return await self.cluster.replace(OFFERED_SLICE, changed)

    async def remove(self, stored: StoredSlice) -> None:
        """Delete a slice that devices are no longer in, whoever wrote it last."""
        await self.cluster.delete(OFFERED_SLICE, stored, unchanged=False)
