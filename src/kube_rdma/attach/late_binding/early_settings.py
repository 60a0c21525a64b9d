"""Settings of containers whose network nobody knows yet: what Allocate adds to its answer.

Beside the binder, which tells a container of its devices when they are bound.
attach/rules/settings/early decides which way they come, attach/rules/settings/files what they say;
here they are laid out on the host. A container starts without them where that fails, as it started
before there were any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_base.notices import Notices
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import Shelf
from kube_rdma.attach.rules.late_binding.binding import SETTLED
from kube_rdma.attach.rules.settings.container import known_devices
from kube_rdma.attach.rules.settings.early import (
    BIN,
    SettingsWay,
    cdi_device,
    folder_name,
    mounts,
    way,
)
from kube_rdma.attach.rules.settings.files import pool_files
from kube_rdma.model.late_binding.binding import Edits, lift_memlock, merge_settings
from kube_rdma.model.pools.pool import Grant, Pool
from kube_rdma.pools.rules.allocation import granted_cards
from kube_rdma.pools.rules.modes import terms

log = structlog.get_logger()


class EarlySettings:
    """One per agent. `folder` is the host's; None: its disk is not here, and nothing can be given.

    `cdi` is None where the runtime is not known to read CDI files; `shim` is a path of the host.
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
        self._turn = asyncio.Lock()  # who writes files
        self._notices = Notices()

    def offered(self, resources: Iterable[str]) -> None:
        """Take note of what is offered now: beside another resource no device is named."""
        self._offered = frozenset(resources)

    async def give(self, pool: Pool, grant: Grant) -> Grant:
        """The grant with its container's settings, unless these come when it is bound."""
        shim = self._shim()
        how = way(terms(pool.spec).attach, cdi=self._cdi is not None, shim=shim is not None)
        if how is SettingsWay.BOUND:
            return grant
        name, files = _settings_of(pool, grant, alone=self._offered == {grant.resource})
        try:
            async with self._turn:
                if how is SettingsWay.MOUNTED:
                    given = await self._mount(grant, name, files)
                else:
                    given = await self._name(grant, name, files, shim)
        except Unavailable as error:
            self._tell(error)
            return grant
        self._notices.over("settings")
        return given

    async def renew(self) -> None:
        """Write the CDI files that a boot took, and those of another shim.

        The kubelet goes on giving what Allocate answered before it.
        """
        if not (self._merged and self._cdi and (shim := self._shim())):
            return
        try:
            async with self._turn:
                for name in await asyncio.to_thread(self._merged.names):
                    folder = self._merged.folder(name)
                    await asyncio.to_thread(self._share, self._cdi, folder, shim)
        except Unavailable as error:
            self._tell(error)

    async def _name(
        self, grant: Grant, name: str, files: Mapping[str, str], shim: str | None
    ) -> Grant:
        """The grant with the CDI device of these settings."""
        if self._merged is None or self._cdi is None or shim is None:
            return grant
        folder = await asyncio.to_thread(self._merged.put, name, files)
        if await asyncio.to_thread(self._share, self._cdi, folder, shim):
            await asyncio.sleep(SETTLED)  # until the runtime has seen the file
        return replace(grant, cdi=(*grant.cdi, cdi_device(name)))

    async def _mount(self, grant: Grant, name: str, files: Mapping[str, str]) -> Grant:
        """The grant with the folder of these settings, and one of the script."""
        if self._mounted is None:
            return grant
        folder = await asyncio.to_thread(self._mounted.put, name, files)
        script = await asyncio.to_thread(self._mounted.put, BIN, {})
        made = mounts(grant.resource, str(folder), str(script))
        return replace(grant, mounts=(*grant.mounts, *made))

    def _tell(self, error: Unavailable) -> None:
        self._notices.warn(log, "settings not given", "settings", str(error))

    def _share(self, cdi: CdiFolder, folder: Path, shim: str) -> bool:
        hooks = lift_memlock(shim), merge_settings(shim, str(folder))
        return cdi.share(cdi_device(folder.name), Edits(hooks=hooks))


def _settings_of(pool: Pool, grant: Grant, *, alone: bool) -> tuple[str, dict[str, str]]:
    """The name of the folder for whoever is granted this, and its files."""
    shares = [pool.index[name] for name in grant.shares]
    used = known_devices(granted_cards(pool, shares) if alone else pool.cards)
    name = folder_name(pool.spec.resource, used if alone else ())
    return name, pool_files(used, pool.spec.fabric, alone=alone)
