"""One run of the agent of network_world.py, and its neighbours, which count what is done to them.

Each thing that the agent does to one of them is an act of its Life. A life that has ended does
nothing more, so no handler of an error cleans up behind a crash.
"""

import asyncio
from errno import EIO

from kube_base.errors import KubeError
from kube_base.frozen import replace
from kube_rdma.attach.rules.settings import as_asked
from kube_rdma_testing.ipam import FakeAddresses
from kube_rdma_testing.kernel.network import KilledError
from kube_rdma_testing.kernel.network_kernel import FakeKernel


class Life:
    """One run of the agent; it ends after act number `at`, from 1, or gets an error there."""

    def __init__(self, at=None, error=None):
        self.at, self.error, self.dead, self.acts = at, error, False, []

    def alive(self):
        if self.dead:
            raise KilledError

    def act(self, what):
        self.acts.append(what)
        if len(self.acts) == self.at:
            self.dead = self.error is None
            raise self.error or KilledError


class Kernel(FakeKernel):
    life = Life()

    def message(self):
        super().message()
        self.life.act(f"message {self.messages}")


class Disk:
    """The journal's disk, in one life; its errors are those of a disk."""

    def __init__(self, disk, life):
        self._disk, self._life, self.path = disk, life, disk.path

    def __getattr__(self, name):
        act = getattr(self._disk, name)

        def do(*args):
            self._life.alive()
            result = act(*args)
            if name not in ("names", "read", "close", "release"):
                try:
                    self._life.act(name)
                except KubeError as error:
                    raise OSError(EIO, str(error)) from error
            return result

        return do


class Addresses:
    """The node's addresses, in one life; `held` are the containers that have some."""

    def __init__(self, giver, held, life):
        self._giver, self.held, self._life = giver, held, life

    async def add(self, request):
        self._life.alive()
        granted = await self._giver.add(request)
        self.held[request.container] = {str(one.address) for one in granted.allocations}
        self._life.act("addresses taken")
        return granted

    async def delete(self, container, interface=None):
        self._life.alive()
        await self._giver.delete(container, interface)
        self.held.pop(container, None)
        self._life.act("addresses given back")

    def now(self):
        return self._giver.now()

    async def collect(self, living, since):
        self._life.alive()
        await self._giver.collect(living, since)
        for container in self.held.keys() - living:
            del self.held[container]

    async def check(self):
        return await self._giver.check()


class Halting(FakeAddresses):
    """The first who asks for addresses waits until another does, or it may go on."""

    def __init__(self, pools):
        super().__init__(pools)
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def add(self, request):
        if self.asked.is_set():
            self.goes_on.set()
        self.asked.set()
        await self.goes_on.wait()
        return await super().add(request)


class Late:
    """Late binding, in one life; `bound` has the edits of each sandbox."""

    def __init__(self, bound, life):
        self._bound, self._life = bound, life

    async def attach(self, sandbox, edits, annotations, holdings):
        self._life.alive()
        self._bound[sandbox.container] = {
            held: replace(given, used=as_asked(given.used, annotations))
            for held, given in edits.items()
        }
        self._life.act("bound")

    async def detach(self, container):
        self._life.alive()
        self._bound.pop(container, None)
        self._life.act("unbound")
