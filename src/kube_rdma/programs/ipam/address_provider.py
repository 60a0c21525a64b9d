"""What everybody asks for addresses: attach in the agent, the IPAM plugin, DRA.

NodeAddresses (programs/ipam/node) is the real one, FakeAddresses lives in memory; the same tests
run on both.
"""

from __future__ import annotations

from typing import Protocol

from kube_base.errors import Broken
from kube_rdma.model.ipam import Ask, ContainerId, InterfaceName
from kube_rdma.rules.ipam.grant import Granted


class AddressProvider(Protocol):
    """Gives addresses to containers of this node."""

    async def add(self, request: Ask) -> Granted:
        """All addresses of a request, durably; the same again for a container that has them.

        Raise Refused (no such pool, rail or address; a pool that is full, or not for the pod's
        namespace), Unavailable (no contact, a disk that is full) and Broken (its addresses
        were taken away). When the caller gives up, the request goes on to its end: repeat it, or
        delete.
        """
        ...

    async def delete(self, container: ContainerId, interface: InterfaceName | None = None) -> None:
        """Let its addresses rest (of one interface); no error when it has none.

        Raise Unavailable when the disk fails: it still has them.
        """
        ...

    def now(self) -> float:
        """Take this before the runtime is asked which containers live."""
        ...

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Release what no container has; `living` are all of the runtime, listed after `since`."""
        ...

    async def check(self) -> tuple[Broken, ...]:
        """A sentence for each address of a living container that another node holds now.

        Raise Unavailable or Broken while no address can be given.
        """
        ...
