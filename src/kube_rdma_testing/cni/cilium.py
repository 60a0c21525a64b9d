"""What Cilium's agent does to a folder of CNI configuration, for tests of plugins beside it.

It renders its list, watches the folder, and at every change renders it again. A list that differs
by a byte is replaced by a rename, and every other configuration gets `.cilium_bak` behind its name.
With the Helm value cni.exclusive=false (`exclusive`) it writes when it starts and watches nothing
(cilium daemon/cmd/cni/config.go, setupCNIConfFile, cleanupOtherCNI).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from asyncinotify import Inotify, Mask

from kube_rdma.model.attach.cni import SET_ASIDE

LIST = """
{
  "cniVersion": "0.3.1",
  "name": "cilium",
  "plugins": [
    {
       "type": "cilium-cni",
       "enable-debug": false,
       "log-file": "/var/run/cilium/cilium-cni.log"
    }
  ]
}"""
FILE = "05-cilium.conflist"
_ENDINGS = (".conf", ".conflist", ".json")
_CHANGES = Mask.CREATE | Mask.MODIFY | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.ATTRIB


class FakeCilium:
    """A fake of Cilium's agent in a CNI folder; `undone` counts how often it undid changes."""

    def __init__(self, folder: Path, *, exclusive: bool = True) -> None:
        self._folder = folder
        self._exclusive = exclusive
        self.undone = 0
        self._acted = asyncio.Event()

    async def until(self, undone: int) -> None:
        """Wait until the agent has undone changes in its folder `undone` times."""
        while self.undone < undone:
            self._acted.clear()
            await self._acted.wait()

    def set_up(self) -> None:
        """Write Cilium's own list and, while it is exclusive, rename all other configurations."""
        path = self._folder / FILE
        if not path.exists() or path.read_text() != LIST:
            self.undone += path.exists()
            fresh = path.with_name(f".{FILE}.new")
            fresh.write_text(LIST)
            fresh.rename(path)
        for other in self._folder.iterdir() if self._exclusive else ():
            if other.name != FILE and other.suffix in _ENDINGS:
                other.rename(other.with_name(other.name + SET_ASIDE))
                self.undone += 1
        self._acted.set()

    async def run(self) -> None:
        """Set the folder up and, if exclusive, again at each change of it; until cancelled."""
        with Inotify() as inotify:
            inotify.add_watch(self._folder, _CHANGES)
            self.set_up()
            while self._exclusive:
                await inotify.get()
                self.set_up()
