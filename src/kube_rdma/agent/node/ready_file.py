"""Writes a file when this node is ready for its pods: ``agent --ready-file``.

    loop (all resources registered) ─► node_networks (in the CNI configuration) ─► the file

A container of a DaemonSet counts as Ready when its startup probe has succeeded, and the probe of
the manifests asks whether this file has a word in it. The file is the container's termination log:
the kubelet makes an empty one for each start of a container (kubernetes v1.34,
pkg/kubelet/kuberuntime/kuberuntime_container.go, makeMounts), so none of an earlier start counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen

Awaited = Callable[[], Awaitable[str]]

log = structlog.get_logger()


class ReadyFile(Frozen):
    """The file of one start of the agent; it has to be there, and is never created."""

    path: Path

    async def run(self, *conditions: Awaited) -> None:
        """Wait for the conditions, write their sentences, and empty the file when cancelled.

        What stays in the file would be shown as the reason why the container ended. Raise
        Unavailable where it cannot be written.
        """
        sentences = [await condition() for condition in conditions]
        await asyncio.to_thread(self._write, "\n".join(sentences))
        log.info("node ready", file=str(self.path))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            with suppress(Unavailable):
                self._write("")

    def _write(self, text: str) -> None:
        try:
            with self.path.open("r+", encoding="utf-8") as file:
                file.write(text)
                file.truncate()
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be written ({error.strerror}), so this agent does not become "
                "Ready: --ready-file has to name the container's terminationMessagePath."
            ) from error
