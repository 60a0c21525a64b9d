"""Takes the Survey: joins what sysfs shows with what RDMA netlink and routing netlink say.

The agent takes one whenever the kernel announces a change, `kube-rdma devices` takes one and shows
it. Taking one reads many small files: call it in a thread from async code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.link_view import merge_holders, set_routes, with_links, with_routes
from kube_rdma.adapters.kernel.netlink import rtnl_read
from kube_rdma.adapters.kernel.netlink.rdma_read import read_links, read_mode
from kube_rdma.adapters.kernel.sriov.netdev_usage import read_uses
from kube_rdma.adapters.kernel.sysfs.devices import read_devices, read_survey
from kube_rdma.model.device import Device
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.survey import Fault, NamespaceMode, Survey

if TYPE_CHECKING:
    from kube_client.objects import Cluster

_SYSFS = Path("/sys")


Own = Callable[[], Mapping[str, str]]
"""The node's own addresses now, each with what it is: ``the node's InternalIP 10.0.0.7``."""


def take_survey(*, brief: bool = False, own: Own = dict) -> Survey:
    """Return the Survey of this node: its RDMA devices, GPUs and PCI functions.

    `own` returns the addresses whose interfaces the node cannot do without, beside those of default
    routes. A kernel without RDMA netlink is a fault in the Survey.
    """
    survey = with_links(read_survey(_SYSFS, brief=brief), read_links)
    return _with_own(with_routes(survey, _SYSFS, rtnl_read.read_default_routes), own())


def take_devices(names: Sequence[str]) -> tuple[tuple[Device, ...], str | None]:
    """Return those of the named RDMA devices that exist, and the path of the RDMA CM's device file.

    They have what sysfs shows: GIDs and device files, but not what netlink says of their ports. The
    path is None without the file.
    """
    devices, rdma_cm = read_devices(_SYSFS, names)
    return devices, rdma_cm.path if rdma_cm else None


def rerouted(survey: Survey, own: Own = dict) -> Survey:
    """Return the Survey with current default routes and current interfaces of `own` addresses."""
    cleared = replace(set_routes(survey, default_route=False, needed=None), routed=())
    return _with_own(with_routes(cleared, _SYSFS, rtnl_read.read_default_routes), own())


def with_uses(survey: Survey) -> Survey:
    """Return the survey with what this node uses its interfaces for.

    Where that cannot be read, the survey has a Fault instead.
    """
    names = [netdev.name for function in survey.functions for netdev in function.netdevs]
    try:
        return survey.with_uses(read_uses(names))
    except Unavailable as error:
        return replace(survey, faults=(*survey.faults, Fault("uses", str(error))))


def _with_own(survey: Survey, own: Mapping[str, str]) -> Survey:
    try:
        holders = rtnl_read.read_holders(own)
        return merge_holders(survey, _SYSFS, holders) if holders else survey
    except Unavailable as error:
        return replace(survey, faults=(*survey.faults, Fault("addresses of the node", str(error))))


# The cache, for callers that cannot wait for a new survey.

Devices = tuple[tuple[Device, ...], str | None]
"""RDMA devices, and the path of the RDMA CM's device file, None without one."""


@dataclass
class SurveyCache:
    """The last Survey of the node. `take` and `last` block: call them in a thread.

    `mode`, `routes` and `devices` read anew what changes more often than the rest.
    """

    survey: Callable[[], Survey] = take_survey
    mode: Callable[[], NamespaceMode] = read_mode
    routes: Callable[[Survey], Survey] = rerouted
    devices: Callable[[Sequence[str]], Devices] = take_devices
    _last: Survey | None = field(default=None, init=False)

    def take(self) -> Survey:
        """Take a new Survey of the node; keep and return it."""
        self._last = self.survey()
        return self._last

    @property
    def has_cards(self) -> bool:
        """Return whether the kept Survey has an RDMA device."""
        return self._last is not None and bool(self._last.devices)

    def last(self, *, leaving: bool) -> Survey:
        """Return the kept Survey, with the current RDMA namespace mode.

        A Survey is taken first if none is kept. `leaving` says that a card may be given away: the
        default routes are then current too.
        """
        survey = self._last or self.take()
        if survey.namespace_mode is not NamespaceMode.UNKNOWN:  # else the kernel has no RDMA
            mode = self.mode()
            if mode not in (NamespaceMode.UNKNOWN, survey.namespace_mode):
                survey = replace(survey, namespace_mode=mode)
        return self.routes(survey) if leaving else survey


# The node's own addresses: an interface that carries one never moves into a pod.

_COUNTED = ("InternalIP", "ExternalIP")


class OwnAddresses:
    """The addresses by which other machines know and reach the node."""

    def __init__(self) -> None:
        self._local: Callable[[], str | None] = lambda: None
        self._node: Mapping[str, str] = {}

    def connected(self, local: Callable[[], str | None]) -> None:
        """Set the function that returns the local address of the connection to the API server."""
        self._local = local

    def seen(self, node: NodeState) -> bool:
        """Remember the addresses of a Node object; return whether they differ from the last."""
        before = self._node
        counted = (pair for pair in node.addresses if pair[0] in _COUNTED)
        self._node = {address: f"the node's {kind} {address}" for kind, address in counted}
        return self._node != before

    def now(self) -> Mapping[str, str]:
        """Return the current addresses of the node, each with a phrase about what it is."""
        local = self._local()
        way = {local: f"the connection to the API server, from {local}"} if local else {}
        return {**way, **self._node}


async def read_own(name: str, opened: AbstractAsyncContextManager[Cluster]) -> Mapping[str, str]:
    """Return the node's own addresses: those of its Node object, and that of this connection.

    Raise Unavailable if the API server has no such node or does not answer, Refused if it refuses.
    """
    # Imported here: role `plugin` alone needs neither the memory nor the time of the client.
    from kube_rdma.adapters.cluster.nodes import Nodes

    async with opened as cluster:
        node = await Nodes(cluster).read(name)
        if node is None:
            raise Unavailable(f"The API server has no node {name}.")
        own = OwnAddresses()
        own.connected(cluster.local_address)
        own.seen(node)
        return own.now()
