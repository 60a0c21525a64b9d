"""Nodes and pods as `kube-rdma verify` sees and makes them: whole objects, as people write them.

What claims give is read as model values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kube_client import wire
from kube_client.errors import Conflict, Lost
from kube_client.objects import Cluster
from kube_client.wire import ApiRequest
from kube_rdma.adapters.cluster.kinds.claim_objects import (
    CLAIM_TEMPLATE,
    DEVICE_CLASS,
    WHOLE_SLICE,
    claim_of_template,
    device_class,
    listed_slice,
)
from kube_rdma.model.claims.claim import Claim, DeviceClass
from kube_rdma.model.claims.listed import ListedSlice

# Of a copy, as its manifest asks: nothing waits for it (DeleteOptions of meta/v1).
_DELETE = msgspec.json.encode(
    {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
)


class VerifyObjects:
    """Of one cluster. All methods raise what `Cluster` raises."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.namespace = cluster.namespace

    async def nodes(self) -> list[dict[str, Any]]:
        """All nodes."""
        return await self._list(ApiRequest("list", "", "v1", "nodes"))

    async def pods(
        self, namespace: str, *, names: Sequence[str] = (), selector: str = ""
    ) -> list[dict[str, Any]]:
        """Those of these names, in this order, else those with these labels."""
        if names:
            requests = [ApiRequest("get", "", "v1", "pods", namespace, name) for name in names]
            return [
                wire.parse(await self._cluster.write(each), dict[str, Any]) for each in requests
            ]
        query = (("labelSelector", selector),)
        return await self._list(ApiRequest("list", "", "v1", "pods", namespace, query=query))

    async def create(self, namespace: str, document: dict[str, Any]) -> None:
        """Create a pod."""
        body = msgspec.json.encode(document)
        request = ApiRequest(
            "create", "", "v1", "pods", namespace, query=self._cluster.managed, body=body
        )
        await self._cluster.write(request)

    async def delete(self, namespace: str, selector: str) -> None:
        """Delete the pods with these labels; nobody waits for their end."""
        for pod in await self.pods(namespace, selector=selector):
            name = pod["metadata"]["name"]
            request = ApiRequest("delete", "", "v1", "pods", namespace, name, body=_DELETE)
            try:
                await self._cluster.write(request)
            except Conflict as missing:
                if missing.lost is not Lost.GONE:
                    raise

    async def classes(self) -> tuple[DeviceClass, ...]:
        """The DeviceClasses that can be read; NotInstalled before Kubernetes 1.34."""
        return tuple(map(device_class, (await self._cluster.see(DEVICE_CLASS)).objects))

    async def slices(self) -> tuple[ListedSlice, ...]:
        """The ResourceSlices of all drivers and nodes that can be read."""
        return tuple(map(listed_slice, (await self._cluster.see(WHOLE_SLICE)).objects))

    async def claim_of(self, namespace: str, template: str) -> Claim | None:
        """The claim that a pod gets of a ResourceClaimTemplate, None without one of this name."""
        stored = await self._cluster.get(CLAIM_TEMPLATE, template, namespace)
        return claim_of_template(stored) if stored else None

    async def _list(self, request: ApiRequest) -> list[dict[str, Any]]:
        documents = wire.page(await self._cluster.write(request)).items
        return [wire.parse(document, dict[str, Any]) for document in documents]
