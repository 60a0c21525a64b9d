"""What a door is: the values between the callers of kube-rdma and the one procedure.

Three doors lead to programs/agent/pod_networks/attach: chain.py (the runtime, for all networks of a
pod), delegate.py (a meta-plugin, for one interface) and ipam_plugin.py (another plugin, for
addresses alone). Each says what a call asks for and where the result goes; router.py chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma.model.attach.attachment import (
    Attached,
    AttachmentKey,
    Given,
    GrantedShare,
    HostNetwork,
    NetworkAsk,
    NetworkSeat,
    Plan,
    Sandbox,
    Wish,
)
from kube_rdma.model.attach.cni import Call, CniResult
from kube_rdma.model.ipam import NicAsk, PodUid
from kube_rdma.model.late_binding.binding import PodName
from kube_rdma.model.pod import PodState

if TYPE_CHECKING:
    from kube_rdma.api.attach.network_definition import NetworkDefinition


class Again(Enum):
    """What an ADD means for a key that has a record."""

    ANSWERED = auto()  # what is complete is the answer, the rest is ended and made anew
    ANEW = auto()  # it is ended and made anew
    KEPT = auto()  # the addresses that it has it gets again


class AskedNetworks(Frozen):
    """The entries of a request, and their networks by namespace/name.

    `table`: the caller leads what comes from the interface's addresses through this routing table.
    """

    asks: tuple[NetworkAsk, ...]
    definitions: Mapping[str, NetworkDefinition]
    table: int | None = None


class NetworkSource(Protocol):
    """How the networks of a request are found: by an annotation, or by one configuration."""

    async def asked(self) -> AskedNetworks:
        """What is asked for; raise Refused with all faults, Unavailable when nobody tells."""

    def wishes(self, asked: AskedNetworks, granted: Sequence[GrantedShare]) -> tuple[Wish, ...]:
        """Each entry with its network; raise Refused for what cannot be met."""

    def seats(
        self,
        wished: Sequence[Wish],
        granted: Sequence[GrantedShare],
        beside: Sequence[Plan],
        host: HostNetwork,
        table: int | None,
    ) -> tuple[NetworkSeat, ...]:
        """Where each goes; `beside` has some of the shares already. Raise Refused."""


class AttachRequest(Frozen, kw_only=True):
    """What one ADD asks for, and in which namespace (`netns` is open).

    `uid` is the pod's as its addresses are booked. Without `networks` no interface is made: `nics`
    are all that is asked for.
    """

    key: AttachmentKey
    sandbox: Sandbox
    netns: int
    uid: PodUid
    pod: PodState | None
    again: Again
    networks: NetworkSource | None = None
    nics: tuple[NicAsk, ...] = ()


class AttachResult(Frozen):
    """What became of a request: addresses, what kube-rdma planned, all interfaces as they are.

    `beside` are the plans of the sandbox's other interfaces.
    """

    given: tuple[Given, ...]
    plans: tuple[Plan, ...] = ()
    interfaces: tuple[Attached, ...] = ()
    beside: tuple[Plan, ...] = ()


class Door(Protocol):
    """A way in. `is_within`: its calls may come from what is run for a sandbox's holder."""

    is_within: bool

    async def request(self, call: Call) -> AttachRequest | None:
        """What an ADD asks for; None: nothing of kube-rdma. Raise KubeError."""

    async def report(self, call: Call, request: AttachRequest, result: AttachResult) -> CniResult:
        """Tell whom it concerns, and what the caller gets; raise KubeError."""


def sandbox_of(call: Call, inode: Callable[[int], int]) -> tuple[Sandbox, int]:
    """Where a call's pod is, and the descriptor of its namespace; raise Unavailable without one.

    `inode` is of the namespace behind a descriptor.
    """
    if call.netns is None:
        raise Unavailable("The pod's network namespace no longer exists.")
    pod = call.pod or PodName("", "")
    place = Sandbox(call.container, pod, call.uid, call.netns_path, inode(call.netns))
    return place, call.netns
