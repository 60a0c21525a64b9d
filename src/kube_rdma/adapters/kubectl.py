"""kubectl, as the person at this terminal has it: what runs in pods is started through it.

exec is a protocol of its own, and whoever may use it has kubectl with their credentials, plugins
and proxies set up; so the proof of a cluster (programs/bandwidth) speaks to it through that alone.
All else of kube-rdma has adapters/cluster.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from kube_rdma.model.errors import Refused, Unavailable

_SHOWN = 300  # characters of what a program printed that a person gets to see


class Kubectl:
    """Calls of kubectl with the same first words (`--kubeconfig FILE`, `--context NAME`)."""

    def __init__(self, words: Sequence[str] = (), program: str = "kubectl") -> None:
        """Raise Refused where there is no such program."""
        path = shutil.which(program)
        if path is None:
            raise Refused(
                f"{program} is not on the PATH",
                remedy="Install it: the tests run in pods by `kubectl exec`",
                where="PATH",
            )
        self._argv = (path, *words)

    async def text(self, *words: str, stdin: str = "") -> str:
        """What it prints; Unavailable with its own words when it fails."""
        process = await asyncio.create_subprocess_exec(
            *self._argv, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        try:
            output, errors = await process.communicate(stdin.encode())
        finally:
            await _end(process)
        if process.returncode:
            raise Unavailable(_failure(words, process, (errors or output).decode(errors="replace")))
        return output.decode(errors="replace")

    async def document(self, *words: str, stdin: str = "") -> Any:
        """The JSON that it prints."""
        return json.loads(await self.text(*words, "-o", "json", stdin=stdin))

    @asynccontextmanager
    async def serving(self, *words: str, until: str) -> AsyncIterator[None]:
        """While something runs that has printed a line `until`.

        Raise Unavailable when it ends without. What it started in a pod has to end by itself.
        """
        process = await asyncio.create_subprocess_exec(
            *self._argv, *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
        )
        try:
            assert process.stdout is not None
            heard = b""
            while line := await process.stdout.readline():
                if line.strip() == until.encode():
                    break
                heard += line
            else:
                await process.wait()
                raise Unavailable(_failure(words, process, heard.decode(errors="replace")))
            drained = asyncio.create_task(process.stdout.read())
            try:
                yield
            finally:
                drained.cancel()
        finally:
            await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _failure(words: Sequence[str], process: Process, output: str) -> str:
    shown = " ".join(output.split())[-_SHOWN:] or "it printed nothing"
    return f"kubectl {words[0]} ended with {process.returncode}: {shown}"
