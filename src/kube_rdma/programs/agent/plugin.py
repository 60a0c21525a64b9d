"""Role `plugin`: offers this node's pools to the kubelet and keeps the offer true.

    config.json ─ api ─► PoolSpec ┐
    kernel ─ survey, verdicts ────┴ rules/pools ─► Pool ─ adapters/kubelet ─► kubelet

Alone it is the whole device plugin of the SCC document: two mounts, no API server, no privilege.
When the kernel announces a change, the burst is waited for, one new Survey taken and every pool
published again; a pool that is the same reaches nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import structlog

from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin
from kube_rdma.api import document, hca
from kube_rdma.model.errors import KubeRdmaError, Unavailable
from kube_rdma.model.pool import Grant, Pool, PoolSpec, ShareId
from kube_rdma.model.survey import Survey
from kube_rdma.programs.agent import news
from kube_rdma.programs.agent.debounce import Debounce
from kube_rdma.rules.allocation import allocate
from kube_rdma.rules.discovery import judge, notes
from kube_rdma.rules.pools import resolve

# The state of a port changes without a uevent. While a pool has cards but nothing healthy to offer,
# and only then, the node is looked at again after so many seconds.
LOOK_AGAIN = 10.0

log = structlog.get_logger()


@dataclass(frozen=True)
class Settings:
    """Where the configuration and the kubelet are."""

    config: Path
    kubelet_dir: Path


@dataclass(frozen=True)
class Kernel:
    """The doors to the kernel, handed in so that tests have their own.

    `survey` blocks and is called in a thread; `uevents` may raise OSError when it is entered.
    """

    survey: Callable[[], Survey]
    uevents: Callable[[], AbstractAsyncContextManager[AsyncIterator[object]]]


def read_config(path: Path) -> tuple[PoolSpec, ...]:
    """The pools that the file wishes for; raise Refused when it cannot be read or understood."""
    try:
        with path.open("rb") as file:
            data = file.read(document.MAX_BYTES + 1)
    except OSError as error:
        raise document.unreadable(str(path), error) from error
    return hca.parse(data, str(path))


async def run_plugin(settings: Settings, kernel: Kernel) -> None:
    """Serve until cancelled; raise a KubeRdmaError when there is no sense in going on."""
    specs = read_config(settings.config)
    log.info("started", version=version("kube-rdma"), config=str(settings.config))
    try:
        await _Plugin(settings, kernel, specs).run()
    except BaseExceptionGroup as group:
        cause = _cause(group)
        if cause is None:
            raise
        raise cause from group


def _cause(group: BaseExceptionGroup) -> KubeRdmaError | None:
    """The error that a person should see: the first of ours, None when there are others too."""
    ours, others = group.split(KubeRdmaError)
    error: BaseException | None = None if others else ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert error is None or isinstance(error, KubeRdmaError)
    return error


class _Plugin:
    """The state of the role: what was last seen and the servers that tell it."""

    def __init__(self, settings: Settings, kernel: Kernel, specs: Sequence[PoolSpec]) -> None:
        self._directory = settings.kubelet_dir
        self._kernel = kernel
        self._specs = specs
        self._servers: dict[PoolSpec, DevicePlugin] = {}
        self._survey: Survey | None = None
        self._changes = Debounce()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            # Listening begins before the first look, so that nothing falls between the two.
            uevents = await self._listen(stack)
            await self._look()
            async with asyncio.TaskGroup() as tasks:
                for server in self._servers.values():
                    tasks.create_task(server.run())
                if uevents:
                    tasks.create_task(self._hear(uevents))
                await self._follow()

    async def _listen(self, stack: AsyncExitStack) -> AsyncIterator[object] | None:
        try:
            return await stack.enter_async_context(self._kernel.uevents())
        except OSError as error:
            log.warning(
                "the kernel announces nothing to us, cards that come or go are not noticed",
                why=error.strerror or str(error),
                remedy="let the pod open netlink sockets (seccomp, sandbox)",
            )
            return None

    async def _hear(self, uevents: AsyncIterator[object]) -> None:
        try:
            async for _ in uevents:
                self._changes.touch()
        except OSError as error:
            raise Unavailable(f"The kernel's announcements broke off: {error}.") from error

    async def _follow(self) -> None:
        while True:
            await self._changes.wait(LOOK_AGAIN if self._is_ill() else None)
            await self._look()

    def _is_ill(self) -> bool:
        """Whether a pool has shares, for cards are there, but none that is healthy."""
        pools = [server.pool for server in self._servers.values()]
        return any(p.shares and not any(s.healthy for s in p.shares) for p in pools)

    async def _look(self) -> None:
        """Take a Survey and publish what every pool is now."""
        survey = await asyncio.to_thread(self._kernel.survey)
        _write(news.of_survey(self._survey, survey))
        if self._survey is None or notes(survey) != notes(self._survey):
            for note in notes(survey):
                log.warning("note", text=note)
        self._survey = survey
        verdicts = judge(survey)
        for spec in self._specs:
            pool = resolve(spec, verdicts, survey)
            server = self._servers.get(spec)
            _write(news.of_pool(server.pool if server else None, pool))
            if server:
                server.publish(pool)
            else:
                self._servers[spec] = DevicePlugin(self._directory, pool, _allocate)


def _allocate(pool: Pool, wanted: Sequence[ShareId]) -> Grant:
    """rules/allocation, with a line in the log."""
    try:
        grant = allocate(pool, wanted)
    except KubeRdmaError as error:
        log.warning("allocation refused", resource=pool.resource, why=str(error))
        raise
    log.info(
        "allocated",
        resource=grant.resource,
        count=len(grant.shares),
        shares=",".join(grant.shares),
        device_nodes=len(grant.char_paths),
    )
    return grant


def _write(lines: Iterable[news.Line]) -> None:
    for line in lines:
        (log.info if line.level == "info" else log.warning)(line.event, **line.facts)
