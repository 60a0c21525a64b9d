"""Late binding: what Allocate promised is bound when the pod's network is attached, or at start.

    Allocate ─ promise ─► journal    CNI ADD ─ bind ─► journal, CDI file    PreStart ─ gate ─► ok

attach/rules/late_binding decides, attach/binder does it (docs/decisions/0009). `NoLateBinding` is
for an agent that cannot bind late. Its pools give plain device nodes in the Allocate reply, and
settings as mounts beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import structlog
from msgspec import Struct, field

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import Shelf
from kube_rdma.attach.rules import settings
from kube_rdma.attach.rules.late_binding import SETTLED
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import ContainerId, Edits, HeldShare, lift_memlock, merge_settings
from kube_rdma.model.pools import Attach, Grant, Pool, PoolSpec, ShareId
from kube_rdma.pools.rules.allocation import granted_cards
from kube_rdma.pools.rules.modes import terms
from kube_rdma.pools.rules.node_health import LinksInside

ASK_SECONDS = 60.0

log = structlog.get_logger()


class EarlySettings:
    """Settings files that Allocate hands out, before the container's network is known.

    `folder` is the host's; None: nothing can be given. `cdi` is None where nothing can be bound
    late; `shim` returns a path of the host.
    """

    def __init__(
        self,
        folder: Path | None = None,
        cdi: CdiFolder | None = None,
        shim: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._mounted = Shelf(folder / "mounted", 0o755) if folder else None
        self._merged = Shelf(folder / "merged", 0o700) if folder else None
        self._cdi = cdi
        self._shim = shim
        self._offered: frozenset[str] = frozenset()
        self._lock = asyncio.Lock()  # for writing files
        self._notices = Notices()

    def offered(self, resources: Iterable[str]) -> None:
        """Note the resources on offer; settings files name devices only if there is just one."""
        self._offered = frozenset(resources)

    async def give(self, pool: Pool, grant: Grant) -> Grant:
        """Write settings files, unless that is done when it is bound; return the grant with them.

        If they cannot be written, log it and return the grant without them.
        """
        shim = self._shim()
        attach, cdi = terms(pool.spec).attach, self._cdi is not None
        how = settings.way(attach, cdi=cdi, shim=shim is not None)
        if how is settings.SettingsWay.BOUND:
            return grant
        alone = self._offered == {grant.resource}
        shares = [pool.index[name] for name in grant.shares]
        used = settings.known_devices(granted_cards(pool, shares) if alone else pool.cards)
        name = settings.folder_name(pool.spec.resource, used if alone else ())
        files = settings.pool_files(used, pool.spec.fabric, alone=alone)
        try:
            async with self._lock:
                if how is settings.SettingsWay.MOUNTED:
                    given = await self._mount(grant, name, files)
                else:
                    given = await self._name(grant, name, files, shim)
        except Unavailable as error:
            self._notices.warn(log, "settings not given", "settings", str(error))
            return grant
        self._notices.over("settings")
        return given

    async def renew(self) -> None:
        """Write settings' CDI files again if a reboot removed them, or the shim's path changed.

        The kubelet may still hand out names that Allocate answered before the reboot.
        """
        if not (self._merged and self._cdi and (shim := self._shim())):
            return
        try:
            async with self._lock:
                for name in await asyncio.to_thread(self._merged.names):
                    await asyncio.to_thread(self._share, self._cdi, self._merged.folder(name), shim)
        except Unavailable as error:
            self._notices.warn(log, "settings not given", "settings", str(error))

    async def _name(
        self, grant: Grant, name: str, files: Mapping[str, str], shim: str | None
    ) -> Grant:
        """Write these settings files; return the grant with the name of a CDI device for them."""
        if self._merged is None or self._cdi is None or shim is None:
            return grant
        folder = await asyncio.to_thread(self._merged.put, name, files)
        if await asyncio.to_thread(self._share, self._cdi, folder, shim):
            await asyncio.sleep(SETTLED)  # until the runtime has seen the file
        return replace(grant, cdi=(*grant.cdi, settings.cdi_device(name)))

    async def _mount(self, grant: Grant, name: str, files: Mapping[str, str]) -> Grant:
        """Write these settings; return the grant with mounts for their folder and the script."""
        if self._mounted is None:
            return grant
        folder = await asyncio.to_thread(self._mounted.put, name, files)
        script = await asyncio.to_thread(self._mounted.put, settings.BIN, {})
        made = settings.mounts(grant.resource, str(folder), str(script))
        return replace(grant, mounts=(*grant.mounts, *made))

    def _share(self, cdi: CdiFolder, folder: Path, shim: str) -> bool:
        hooks = lift_memlock(shim), merge_settings(shim, str(folder))
        return cdi.share(settings.cdi_device(folder.name), Edits(hooks=hooks))


class LateBinding:
    """The interface of late binding for the agent's role `plugin`; this base binds nothing."""

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """Return the specs with `attach` as far as this node supports it."""
        return tuple(specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Note the pools that are offered now, by resource."""

    async def promise(self, pool: Pool, grant: Grant) -> Grant:
        """Return the grant for Allocate's answer, with a name for what is bound later."""
        return grant

    async def start(self, pool: Pool, shares: Sequence[ShareId]) -> None:
        """Wait until the container with exactly these shares may start.

        Raise KubeError if it may not, or if that is not known now.
        """

    async def links_inside(self, node: Sequence[Card]) -> LinksInside:
        """Return the pod and its links for each card of the node that is in a pod."""
        return {}

    def cards(self) -> frozenset[CardId] | None:
        """Return the cards that are promised or bound; None if a record cannot be understood."""
        return frozenset()

    async def held(self) -> tuple[Holding, ...]:
        """Return the shares that the journal has as bound for running pods.

        Raise Unavailable if disk or runtime do not answer.
        """
        return ()

    async def sweep(self) -> None:
        """Remove outdated promises, bindings and files, until cancelled."""

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[HeldShare, Edits],
        annotations: Mapping[str, str],
        holdings: Sequence[Holding] | None = None,
    ) -> object:
        """Bind all promises of a pod: to the `edits` of their shares, else to their cards' nodes.

        `annotations` are the pod's. `holdings` are all that it holds; the kubelet is asked if they
        are None or do not suffice. Raise KubeError if binding fails.
        """

    async def detach(self, container: ContainerId) -> None:
        """Remove all bindings in a sandbox, with their files."""


class NoLateBinding(LateBinding):
    """The choice to bind nothing late on a node, for the reason `why`, which is logged."""

    def __init__(self, why: str, early: EarlySettings | None = None) -> None:
        self._why = why
        self._early = early or EarlySettings()
        self._notices = Notices()  # by resource

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """Return the specs changed to bind nothing late."""
        for spec in specs:
            if terms(spec).attach is Attach.NONE:
                continue
            event = "devices are given at Allocate, not bound to the pod's network"
            self._notices.warn(log, event, spec.resource, self._why, resource=spec.resource)
        return tuple(replace(spec, attach=Attach.NONE) for spec in specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Note the pools that are offered now, by resource."""
        self._early.offered(pools)

    async def promise(self, pool: Pool, grant: Grant) -> Grant:
        """Return the grant with settings files; nothing else changes."""
        return await self._early.give(pool, grant)


class LateBindingChoice(Struct):
    """The late binding in use (`now`), which is replaced once the runtime reads CDI files.

    `ask` returns whether CDI works, and why; without it nothing changes. `make` may raise
    KubeError, and is tried again.
    """

    now: LateBinding
    ask: Callable[[], Awaitable[tuple[bool, str]]] | None = None
    make: Callable[[], LateBinding] = LateBinding
    seconds: float = ASK_SECONDS
    made: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, changed: Callable[[], None]) -> None:
        """Ask until CDI works, put late binding to use, then call `changed`."""
        while self.ask and not self.made.is_set():
            await asyncio.sleep(self.seconds)
            works, why = await self.ask()
            if not works:
                continue
            try:
                self.now = self.make()
            except KubeError as error:
                log.warning("late binding not available", why=str(error))
                continue
            log.info("late binding available", why=why)
            self.made.set()
            changed()

    async def sweep(self) -> None:
        """Remove outdated promises, bindings and files, until cancelled.

        This begins when late binding is in use.
        """
        if self.ask:
            await self.made.wait()
        await self.now.sweep()
