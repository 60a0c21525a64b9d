"""Runs Steps: whatever kube-rdma itself changes in the network of a pod, it changes here.

    with open_pod(Path("/run/netns/cni-…")) as pod:
        for step in plan.steps:
            pod.run(step)

attach/rules/plan plans Steps, and the journal keeps them. links.py speaks routing netlink and
writes sysctls, netlink/rdma_write.py speaks RDMA netlink, gids.py waits, and probe.py probes and
announces addresses. cni/plugins.py calls the plugins of others. The functions block; a program
calls them in a thread. The fake is kube_rdma_testing/kernel/network.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink import rtnl_read
from kube_rdma.adapters.kernel.netlink.codec import Netlink
from kube_rdma.adapters.kernel.netlink.rdma_read import NETLINK_RDMA
from kube_rdma.adapters.kernel.netlink.rdma_write import PodRdma, devices, make_device, netdev_of
from kube_rdma.adapters.kernel.netlink.rtnl_vf import reset_function, seen_functions, set_function
from kube_rdma.adapters.kernel.pod.errors import namespace_gone, no_rdma
from kube_rdma.adapters.kernel.pod.gids import DEVICES, PATIENCE, await_gid, listed, pci_of
from kube_rdma.adapters.kernel.pod.links import (
    PodLinks,
    PodSysctls,
    remove_returned,
    restore_on_node,
)
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, open_inside
from kube_rdma.adapters.kernel.pod.probe import Announcer, probe
from kube_rdma.adapters.kernel.sriov.rebind import FunctionDrivers
from kube_rdma.adapters.kernel.sysfs.pod import PodSysfs
from kube_rdma.model.attach import steps
from kube_rdma.model.attach.attachment import PodView, SeenLink, SeenRdma
from kube_rdma.model.device import PciAddress
from kube_rdma.model.ipam import Address, InterfaceName
from kube_rdma.model.pools import FunctionPlace, RebindFunction, ResetFunction, SetFunction

_HERE = "/proc/thread-self/ns/net"


class PodNetwork(Protocol):
    """Access from outside to the network of one pod: it runs and undoes Steps, and shows results.

    The path of a namespace may lead to a later namespace; the inode tells which one is there.
    """

    @property
    def inode(self) -> int | None:
        """Return the inode of the namespace, None when it is gone."""

    def run(self, step: steps.Step) -> None:
        """Run a Step of a plan; do nothing if it is done already.

        Raise Refused when the asker must change something, Unavailable when something is gone,
        busy or late.
        """

    def undo(self, undo: steps.Undo) -> None:
        """Undo a Step; do nothing if it is undone already, or was never run.

        Raise as `run` does, and Broken when another interface has the card's old name now.
        """

    def links(self) -> tuple[SeenLink, ...]:
        """Return the pod's interfaces with their addresses, and nothing else."""

    def look(self, sysctls: Sequence[str] = (), functions: Sequence[FunctionPlace] = ()) -> PodView:
        """Return the pod's present state, with these sysctls and settings of these functions."""


@contextmanager
def open_pod(
    netns: Namespace | None, *, patience: float = PATIENCE, rdma: Path = DEVICES
) -> Iterator[PodNetwork]:
    """Open a pod's network by its namespace, `netns`, from the node's namespace.

    Without `netns` the pod's namespace is gone, and only undo() works. An open network keeps the
    namespace alive, so close it soon. `patience` bounds AwaitGid and the wait for a carrier, in
    seconds. `rdma` is the node's /sys/class/infiniband. Raise Unavailable when the namespace is
    gone, Refused when it may not be entered.
    """
    with ExitStack() as stack:
        node = stack.enter_context(_Side())
        if netns is None:
            yield _GonePod(node.rtnl, node.rdma, FunctionDrivers(rdma))
            return
        pod = stack.enter_context(open_inside(netns, _Side))
        links = PodLinks(node.rtnl, pod.rtnl, pod.namespace, node.namespace)
        announcer = stack.enter_context(closing(Announcer(pod.namespace, links.link)))
        sysfs = stack.enter_context(closing(PodSysfs(pod.namespace, rdma)))
        both = PodRdma(node.rdma, pod.rdma, sysfs.pci_of, rdma) if node.rdma and pod.rdma else None
        sysctls = stack.enter_context(closing(PodSysctls(pod.namespace)))
        yield _LivePod(links, both, announcer, sysfs, sysctls, patience)


class _LivePod:
    """The network of a pod whose namespace exists."""

    def __init__(
        self,
        links: PodLinks,
        rdma: PodRdma | None,
        announcer: Announcer,
        sysfs: PodSysfs,
        sysctls: PodSysctls,
        patience: float,
    ) -> None:
        self._links = links
        self._sysctls = sysctls
        self._maybe_rdma = rdma
        self._sysfs = sysfs
        self._functions = FunctionDrivers(sysfs.node)
        self._run: dict[type, Callable[[Any], None]] = {
            steps.MakeLink: links.make,
            steps.TakeLink: self._take,
            SetFunction: lambda step: set_function(links.node, step),
            RebindFunction: self._rebind,
            steps.SetLink: links.set,
            steps.Probe: lambda step: probe(step, links.namespace, links.pod, patience),
            steps.AddAddress: links.add_address,
            steps.AddRoute: links.add_route,
            steps.AddRule: links.add_rule,
            steps.SetSysctl: sysctls.write,
            steps.MakeRdma: lambda step: make_device(self._rdma.pod, step),
            steps.MoveRdma: lambda step: self._rdma.move(step, links.namespace),
            steps.AwaitPartition: lambda step: self._functions.await_partition(
                step, self._inside(step.pci)
            ),
            steps.AwaitGid: lambda step: await_gid(step, sysfs.devices(step.device), patience),
            steps.Announce: announcer.announce,
        }
        self._undo: dict[type, Callable[[Any], None]] = {
            steps.RemoveLink: links.remove,
            steps.RemoveLinks: links.remove_all,
            steps.GiveBackLink: links.give_back,
            ResetFunction: lambda undo: reset_function(links.node, undo),
            RebindFunction: self._functions.rebind,
            steps.RestoreRdma: lambda undo: make_device(self._rdma.node, undo),
            steps.RemoveRule: links.remove_rule,
            steps.RemoveRdma: lambda undo: self._rdma.remove(undo) if rdma else None,
            steps.GiveBackRdma: lambda undo: self._rdma.give_back(undo, links.home),
        }

    @property
    def inode(self) -> int | None:
        return os.fstat(self._links.namespace).st_ino

    def run(self, step: steps.Step) -> None:
        self._run[type(step)](step)

    def undo(self, undo: steps.Undo) -> None:
        self._undo[type(undo)](undo)

    def links(self) -> tuple[SeenLink, ...]:
        return rtnl_read.seen_links(self._links.pod)

    def look(self, sysctls: Sequence[str] = (), functions: Sequence[FunctionPlace] = ()) -> PodView:
        pod = self._links.pod
        links = rtnl_read.seen_links(pod)
        read = ((path, self._sysctls.read(path)) for path in sysctls)
        return PodView(
            links=links,
            routes=rtnl_read.seen_routes(pod, links),
            rules=rtnl_read.seen_rules(pod),
            rdma=tuple(self._seen_rdma(links)),
            sysctls=tuple((path, value) for path, value in read if value is not None),
            functions=seen_functions(self._links.node, functions),
        )

    @property
    def _rdma(self) -> PodRdma:
        if self._maybe_rdma is None:
            raise no_rdma()
        return self._maybe_rdma

    def _rebind(self, step: RebindFunction) -> None:
        device = self._rdma.inside(step.pci)
        if device is None or device.guid != step.guid:
            self._functions.rebind(step)

    def _take(self, step: steps.TakeLink) -> None:
        if step.active and step.pci:
            self._functions.await_port(step.pci, self._inside(step.pci))
        self._links.take(step)

    def _inside(self, pci: PciAddress) -> Path | None:
        """Return the sysfs folder of a function's RDMA device in the pod; None without a device."""
        device = self._rdma.inside(pci)
        return self._sysfs.devices(device.name) / device.name if device else None

    def _seen_rdma(self, links: tuple[SeenLink, ...]) -> Iterator[SeenRdma]:
        for device in devices(self._maybe_rdma.pod) if self._maybe_rdma else ():
            where = self._sysfs.devices(device.name)
            pci, gids = pci_of(where, device.name), listed(where, device.name)
            seen = seen_device(device.name, netdev_of(device), pci, gids, links)
            yield replace(seen, guid=device.guid)


def seen_device(
    name: str,
    netdev: str | None,
    pci: PciAddress | None,
    gids: tuple[tuple[str, Address], ...],
    links: tuple[SeenLink, ...],
) -> SeenRdma:
    """Return an RDMA device with the GIDs that belong to the pod.

    A card that all pods share lists the GIDs of all: the pod's are those whose address is on an
    interface of its own.
    """
    own = {(link.name, address) for link in links for address, _ in link.addresses}
    mine = ((InterfaceName(on), address) for on, address in gids)
    on = InterfaceName(netdev) if netdev else None
    return SeenRdma(name, on, pci, tuple(pair for pair in mine if pair in own))


class _GonePod:
    """The network of a pod whose namespace is gone.

    Only what is on the node is undone: links and functions of cards, virtual links that the kernel
    moved there, and soft RDMA devices.
    """

    inode = None

    def __init__(self, node: Netlink, rdma: Netlink | None, functions: FunctionDrivers) -> None:
        self._node = node
        self._rdma = rdma
        self._functions = functions

    def run(self, step: steps.Step) -> None:
        raise namespace_gone()

    def undo(self, undo: steps.Undo) -> None:
        if isinstance(undo, steps.GiveBackLink):
            restore_on_node(self._node, undo)
        elif isinstance(undo, ResetFunction):
            reset_function(self._node, undo)
        elif isinstance(undo, RebindFunction):
            self._functions.rebind(undo)
        elif isinstance(undo, steps.RemoveLink | steps.RemoveLinks):
            remove_returned(self._node, undo)
        elif isinstance(undo, steps.RestoreRdma):
            if self._rdma is None:
                raise no_rdma()
            make_device(self._rdma, undo)

    def links(self) -> tuple[SeenLink, ...]:
        raise namespace_gone()

    def look(self, sysctls: Sequence[str] = (), functions: Sequence[FunctionPlace] = ()) -> PodView:
        raise namespace_gone()


class _Side:
    """The netlink sockets and the namespace of one side, the node's or the pod's.

    `namespace` is a descriptor of the namespace, `rtnl` and `rdma` are sockets in it. `rdma` is
    None where the kernel has no RDMA.
    """

    def __init__(self) -> None:
        with ExitStack() as stack:
            self.namespace = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, self.namespace)
            self.rtnl = stack.enter_context(rtnl_read.open_rtnl())
            self.rdma: Netlink | None = None
            with suppress(OSError):
                self.rdma = stack.enter_context(Netlink(NETLINK_RDMA))
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
