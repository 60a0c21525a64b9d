"""The interface by which pods get addresses: attach in the agent and the IPAM plugin call it.

NodeAddresses (ipam/node_addresses) is the real one, FakeAddresses lives in memory; the
same tests run on both.
"""

from __future__ import annotations

from typing import Protocol

from kube_base.errors import Broken
from kube_rdma.ipam.rules.grant import Granted
from kube_rdma.model.ipam import AddressRequest, ContainerId, InterfaceName


class AddressProvider(Protocol):
    """Gives addresses to containers of this node."""

    async def add(self, request: AddressRequest) -> Granted:
        """Allocate all addresses of a request, durably; a container that has some keeps them.

        Raise Refused (no such pool, rail or address; a pool that is full, or not for the pod's
        namespace), Unavailable (no contact, a disk that is full) and Broken (another node has its
        addresses). When the caller gives up, the request goes on to its end: repeat it, or delete.
        """
        ...

    async def delete(self, container: ContainerId, interface: InterfaceName | None = None) -> None:
        """Release the container's addresses (of one interface); no error when it has none.

        Raise Unavailable when the disk fails: the container still has them.
        """
        ...

    def now(self) -> float:
        """The time by the clock of `collect`; take it before the runtime lists its containers."""
        ...

    async def collect(self, living: frozenset[ContainerId], since: float) -> None:
        """Release what containers had that are gone: not among `living`, listed after `since`."""
        ...

    async def check(self) -> tuple[Broken, ...]:
        """A sentence for each address of a living container that another node holds now.

        Raise Unavailable or Broken while no address can be given.
        """
        ...
