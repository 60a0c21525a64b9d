"""A host's folders with a keeper on them, and what the keeper told."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from pathlib import PurePosixPath

from kube_base.errors import Unavailable
from kube_rdma.adapters.cni.conf.folder import ConfFolder, FolderTiming, Keeper
from kube_rdma.adapters.cni.conf.places import CniPlaces
from kube_rdma.attach.rules.conflist import plan, proven, shut_out

AT_ONCE = FolderTiming(settle=0.0, first=0.0, longest=0.0, calm=600.0, proof=0.0)
OTHERS = ("bridge", "ptp", "multus")
PLACES = CniPlaces(PurePosixPath("/net.d"), PurePosixPath("/bin"), "the test")


def chain(files, binaries):
    return proven(plan(files), files, binaries)


class Host:
    """Two folders, one with plugins of others, and what the keeper told of them.

    `places` is where its runtime looks, or an error.
    """

    def __init__(self, root):
        self.root = root
        self.folder = ConfFolder(root / "net.d")
        self.binaries = self.plugins("bin")
        self.places = PLACES
        self.told = []
        self._changed = asyncio.Condition()
        self._tasks = set()

    def tell(self, kept):
        self.told.append(kept)
        task = asyncio.ensure_future(self._notify())
        self._tasks.add(task)

    async def _notify(self):
        async with self._changed:
            self._changed.notify_all()

    async def until(self, count):
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.told) >= count)

    def plugins(self, folder, *names):
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name in names or OTHERS:
            (self.root / folder / name).touch()
        return self.root / folder

    async def find(self):
        if isinstance(self.places, Exception):
            raise self.places
        return self.places

    def put(self, name, text):
        self.folder.path.mkdir(exist_ok=True)
        (self.folder.path / name).write_text(text)

    def text(self, name):
        return (self.folder.path / name).read_text()

    def types(self, name):
        return [one["type"] for one in json.loads(self.text(name))["plugins"]]

    @asynccontextmanager
    async def kept(self, decide=chain, pace=AT_ONCE):
        keeper = Keeper(self.root, self.find, b"shim", decide, self.tell, pace, shut_out)
        task = asyncio.create_task(keeper.run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Unavailable):
                await task
