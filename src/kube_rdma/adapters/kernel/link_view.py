"""Merges netlink's answers about RDMA devices and default routes into a Survey.

netlink/rdma_read and rtnl_read ask the kernel; `devices --record` keeps their answers beside the
files of sysfs. Nothing here opens a socket, so a recorded machine is read on any system.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from kube_base.errors import Refused, Unavailable
from kube_base.foreign_json import decoded
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.kernel.interfaces import as_named
from kube_rdma.adapters.kernel.sysfs.devices import DEVICES, INTERFACE_ELSEWHERE
from kube_rdma.adapters.kernel.sysfs.netdev import NETDEVS, lower_netdevs, soft_identity
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText
from kube_rdma.adapters.kernel.sysfs.tree import SysfsRoot, SysfsTree
from kube_rdma.model.card import Netdev
from kube_rdma.model.device import Device, PhysicalState, PortState
from kube_rdma.model.survey import Fault, NamespaceMode, Survey

_Answer = TypeVar("_Answer")

NETLINK_FILE = "rdma-netlink.json"
ROUTES_FILE = "default-routes.json"

_MOST = 1 << 24  # bytes of NETLINK_FILE that are read; 2000 devices have about 1 MiB


class LinkPort(Frozen):
    """A port of an RDMA device as RDMA netlink reports it; a missing attribute is None."""

    number: int
    state: PortState | None
    physical_state: PhysicalState | None
    netdev: str | None


class LinkDevice(Frozen):
    """An RDMA device as RDMA netlink reports it; requests about the device name its `index`."""

    index: int
    name: str
    firmware: str | None
    ports: tuple[LinkPort, ...] = ()
    guid: str | None = None  # of the node, as FunctionSettings has it
    smi: bool = False  # for the subnet manager alone


class LinkView(Frozen):
    """The answers of RDMA netlink: devices, namespace mode and faults."""

    devices: tuple[LinkDevice, ...]
    namespace_mode: NamespaceMode
    faults: tuple[Fault, ...] = ()


def with_links(survey: Survey, ask: Callable[[], LinkView | None]) -> Survey:
    """Return the survey merged with RDMA netlink's answers; with a fault if they are unavailable.

    It is unchanged where `ask` returns None.
    """
    try:
        links = ask()
        return merge(survey, links) if links else survey
    except Unavailable as error:
        return replace(survey, faults=(*survey.faults, Fault("RDMA netlink", str(error))))


def merge(survey: Survey, view: LinkView) -> Survey:
    """Return one survey of what sysfs and RDMA netlink show of the same kernel.

    Netlink wins where both speak, except for some interfaces (as_named). Netlink names a port's
    interface in this namespace, which from sysfs has to be inferred. The namespace mode is
    netlink's; the rest is that of sysfs. A device that only one of them shows adds a fault.
    """
    links = {link.name: link for link in view.devices}
    managing = {link.name for link in view.devices if link.smi}
    management = tuple(device for device in survey.devices if device.name in managing)
    shown = {device.name for device in (*survey.devices, *survey.management)}
    faults = [
        Fault(f"{DEVICES}/{device.name}", "sysfs shows this device, RDMA netlink does not")
        for device in (*survey.devices, *survey.management)
        if device.name not in links
    ]
    unseen = "RDMA netlink shows this device, sysfs does not"
    reason = f"{unseen}: is /sys of another network namespace?"
    faults += [Fault(f"{DEVICES}/{name}", reason) for name in sorted(links.keys() - shown)]
    known = {netdev.name: netdev for one in survey.functions for netdev in one.netdevs}
    devices = (
        _merge_device(device, links[device.name], known) if device.name in links else device
        for device in survey.devices
        if device not in management
    )
    faults = [*survey.faults, *view.faults, *faults]
    return replace(
        survey,
        devices=tuple(devices),
        namespace_mode=view.namespace_mode,
        faults=tuple(faults),
        management=(*survey.management, *management),
    )


def _merge_device(device: Device, link: LinkDevice, known: Mapping[str, Netdev]) -> Device:
    links = {port.number: port for port in link.ports}
    names = {port.number: port.netdev for port in link.ports if port.netdev}
    soft = device.pci is None
    if device.driver in INTERFACE_ELSEWHERE:
        # Its interface may be a pod's, and share its name with a node's: netlink knows.
        nowhere = links.keys() - names.keys()
        placed = (
            replace(port, netdev=None, bond=None) if port.number in nowhere else port
            for port in device.ports
        )
        device = replace(device, ports=tuple(placed))
    ports = tuple(
        replace(
            port,
            state=of.state or port.state,
            physical_state=of.physical_state or port.physical_state,
        )
        if (of := links.get(port.number))
        else port
        for port in as_named(device, names, known)
    )
    netdev = next((port.netdev for port in ports if port.netdev), None)
    return replace(
        device,
        # A link whose interface sysfs could not name is called by its own name alone.
        identity=soft_identity(device.name, netdev)
        if device.identity == device.name
        else device.identity,
        firmware=link.firmware or device.firmware,
        # Position and node of a soft device are its interface's; without one here there is none.
        position=None if soft and netdev is None else device.position,
        numa_node=None if soft and netdev is None else device.numa_node,
        ports=ports,
    )


# Which interfaces the node is reached through.


def with_routes(
    survey: Survey, root: SysfsRoot, ask: Callable[[], tuple[str, ...] | None]
) -> Survey:
    """Return the survey with default routes marked; with a fault if `ask` raises Unavailable."""
    try:
        routes = ask()
        return merge_routes(survey, root, routes) if routes else survey
    except Unavailable as error:
        faults = (*survey.faults, Fault("default routes", str(error)))
        # Nobody knows which interfaces the node needs.
        return replace(set_routes(survey, default_route=None), faults=faults, routed=None)


def set_routes(survey: Survey, **fields: Any) -> Survey:
    """Return the survey with these fields set on every network interface."""
    every = {netdev.name for one in survey.functions for netdev in one.netdevs}
    return survey.with_netdevs(every, lambda netdev: replace(netdev, **fields))


def merge_routes(survey: Survey, root: SysfsRoot, interfaces: Collection[str]) -> Survey:
    """Return the survey with interfaces marked that carry a default route.

    `routed` gets their names. Below an interface of a route, a bond's slaves, a bridge's ports and
    a vlan's parent are marked too (class/net/X/lower_* below `root`). An interface that the tree
    does not show is a fault, for the routes may be another namespace's.
    """
    tree = SysfsTree(root)
    carriers = _with_lower(tree, interfaces)
    unseen = [f"{NETDEVS}/{name}" for name in interfaces if not tree.holds(f"{NETDEVS}/{name}")]
    why = "has a default route and is not there: is /sys of another network namespace?"

    return replace(
        survey.with_netdevs(carriers, lambda one: replace(one, default_route=one.name in carriers)),
        faults=(*survey.faults, *tree.faults, *(Fault(path, why) for path in unseen)),
        routed=tuple(sorted(carriers.union(survey.routed or ()))),
    )


def merge_holders(survey: Survey, root: SysfsRoot, holders: Mapping[str, str]) -> Survey:
    """Return the survey with interfaces marked that carry traffic of the node's own addresses.

    `holders` has a description of the address by interface. Descriptions go into `needed`, and
    interfaces into `routed` unless that is None.
    """
    tree = SysfsTree(root)
    below = {
        name: word for top, word in sorted(holders.items()) for name in _with_lower(tree, [top])
    }

    return replace(
        survey.with_netdevs(below, lambda one: replace(one, needed=below.get(one.name))),
        faults=(*survey.faults, *tree.faults),
        routed=None if survey.routed is None else tuple(sorted({*survey.routed, *below})),
    )


def _with_lower(tree: SysfsTree, interfaces: Collection[str]) -> frozenset[str]:
    """Return these interfaces and all that they are built on, such as slaves of a bond."""
    carriers: set[str] = set()
    pending = list(interfaces)
    while pending:
        name = pending.pop()
        if name not in carriers:
            carriers.add(name)
            pending += lower_netdevs(tree, name)
    return frozenset(carriers)


# The answers of netlink that a recorded node has.


def recorded_links(sysfs: SysfsRoot) -> LinkView | None:
    """Return RDMA netlink's answer in a recorded tree; None without its file.

    Raise Unavailable if read_links did when the node was recorded, Refused when the file is not
    what `record` writes.
    """
    return _recorded(sysfs, NETLINK_FILE, LinkView)


def recorded_routes(sysfs: SysfsRoot) -> tuple[str, ...] | None:
    """Return the interfaces with a default route in a recorded tree; None without their file.

    Raise errors as recorded_links does.
    """
    routes = _recorded(sysfs, ROUTES_FILE, _Routes)
    return routes.interfaces if routes else None


class _Routes(Frozen):
    interfaces: tuple[str, ...]


def _recorded(sysfs: SysfsRoot, name: str, what: type[_Answer]) -> _Answer | None:
    try:
        if isinstance(sysfs, RecordedText):
            data = sysfs.read(name)
        else:
            with (sysfs / name).open("rb") as file:
                data = file.read(_MOST)
        document = decoded(data, dict[str, Any], most=_MOST)
        if "unavailable" not in document:
            return decoded(data, what, most=_MOST)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Refused(
            f"it is not what --record writes ({type(error).__name__}: {error})",
            remedy="Record the node again, or remove the file to read the tree alone",
            where=name if isinstance(sysfs, RecordedText) else str(sysfs / name),
        ) from error
    raise Unavailable(str(document["unavailable"]))
