"""Which GUIDs of InfiniBand are taken on this node, with those that a pod is just being given.

An ADD has found its GUID free some time before there is a record that says whose it is. Two pods
that ask for one GUID at the same moment would both get it, so it is claimed in the same breath in
which it is found free. Used by programs/agent/pod_networks/chain and delegate, which share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kube_rdma.model.attachment import Attachment, HostNetwork, NetworkSeat, Sandbox
from kube_rdma.model.binding import ContainerId
from kube_rdma.rules.attach import guids
from kube_rdma.rules.attach.infiniband import refuse_taken


class Guids:
    """`attachments` tells those of this node that have a record."""

    def __init__(self, attachments: Callable[[], Iterable[Attachment]]) -> None:
        self._attachments = attachments
        self._claimed: dict[ContainerId, dict[str, str]] = {}  # who gets it, by GUID

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments of this node, however its pods came to them."""
        return tuple(self._attachments())

    def claim(self, sandbox: Sandbox, placed: Sequence[NetworkSeat], host: HostNetwork) -> None:
        """Keep the GUIDs of these seats from all others until `release`; raise Refused.

        Nothing is awaited in here, so no other ADD comes in between.
        """
        me = sandbox.container
        others = [one for one in self._attachments() if one.sandbox.container != me]
        claims = (of for container, of in self._claimed.items() if container != me)
        refuse_taken(placed, others, host, {guid: by for of in claims for guid, by in of.items()})
        requested = [guids.asked(seat.wish) for seat in placed]
        if mine := {
            guid: f"{sandbox.pod} is being given it" for _, guid in filter(None, requested)
        }:
            self._claimed[me] = mine

    def release(self, container: ContainerId) -> None:
        """The ADD has ended, in whatever way: its record tells, or it has nothing."""
        self._claimed.pop(container, None)
