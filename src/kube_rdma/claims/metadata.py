"""Files by which programs in a container learn of its claims (KEP-5304): written and mounted.

Beside the settings of NCCL and UCX, which are of a container. These are of a claim, so the claim's
CDI device mounts them; they are there before it is. What the network made is told of claims of one
pod alone, those of templates: the file of a claim of several would be another pod's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from kube_base.errors import Unavailable
from kube_base.notices import Notices
from kube_rdma.adapters.runtime.settings import ClaimFiles
from kube_rdma.claims.rules.metadata import Attributes, files, own_pod, request_of
from kube_rdma.model.attach.attachment import Attached
from kube_rdma.model.claims.prepared import PreparedClaim
from kube_rdma.model.pools.pool import FileMount

log = structlog.get_logger()


class ClaimMetadata:
    """One per agent; `attributes` are what the slices of the node say of its devices now."""

    def __init__(self, folder: ClaimFiles, attributes: Callable[[], Attributes]) -> None:
        self._folder = folder
        self._attributes = attributes
        self._notices = Notices()

    def mounts(self, prepared: PreparedClaim) -> dict[str, FileMount]:
        """By request what its containers see, once it lies there; raise Unavailable. It blocks."""
        texts = self._texts(prepared)
        paths = self._folder.put(prepared.claim.uid, texts[0])
        return {
            name: FileMount(paths[name], where) for name, where in zip(paths, texts[1], strict=True)
        }

    async def attached(self, prepared: PreparedClaim, interfaces: Sequence[Attached]) -> None:
        """Its pod got these interfaces; what fails is told once, and the file stays as it was."""
        if not prepared.pod_claim:
            return
        texts, _ = self._texts(prepared, interfaces)
        try:
            await asyncio.to_thread(self._folder.put, prepared.claim.uid, texts)
        except Unavailable as error:
            self._notices.warn(
                log,
                "metadata of claim not written",
                "metadata",
                str(error),
                claim=str(prepared.claim),
            )
            return
        self._notices.over("metadata")

    async def remove(self, uid: str) -> None:
        """The claim was given back; raise Unavailable."""
        await asyncio.to_thread(self._folder.remove, uid)

    def _texts(
        self, prepared: PreparedClaim, interfaces: Sequence[Attached] = ()
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """The texts by request, and where a container has each."""
        made = files(prepared, own_pod(prepared), self._attributes(), interfaces)
        return {request_of(path): text for path, text in made.items()}, tuple(made)
