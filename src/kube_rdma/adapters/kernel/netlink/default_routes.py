"""Which network functions the node itself is reached through: default routes, its own addresses.

hardware/survey joins it to the Survey, so that no rule gives such a card away. Routing netlink
names the interfaces; sysfs says what a bond, vlan or bridge among them stands on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.rtnl import default_interfaces, open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import address_holders
from kube_rdma.adapters.kernel.sysfs.functions import NETDEVS
from kube_rdma.adapters.kernel.sysfs.netdev import lower_netdevs
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.survey import Fault, Survey


def read_default_routes() -> tuple[str, ...]:
    """The interfaces with a default route in this thread's network namespace, sorted.

    Raise Unavailable when the kernel does not say.
    """
    try:
        netlink = open_rtnl()
    except OSError as error:
        raise Unavailable(f"the kernel offers no routing netlink ({error.strerror})") from error
    with netlink:
        return default_interfaces(netlink)


def read_holders(own: Mapping[str, str]) -> dict[str, str]:
    """By interface which address of the node it has; `own` says by address what it is.

    Raise Unavailable when the kernel does not say.
    """
    if not own:
        return {}
    words = {ip_address(text): word for text, word in own.items()}
    try:
        netlink = open_rtnl()
    except OSError as error:
        raise Unavailable(f"the kernel offers no routing netlink ({error.strerror})") from error
    with netlink:
        return {name: words[address] for name, address in address_holders(netlink, words)}


def merge_routes(survey: Survey, root: Path, interfaces: Collection[str]) -> Survey:
    """The Survey with `routed`, and default_route of every function's interface that is among them.

    An interface carries the route of whatever stands on it: every slave of a bond, every port of a
    bridge, the parent of a vlan (class/net/X/lower_* below `root`). An interface that the tree does
    not show is a fault, for then the routes may be those of another network namespace.
    """
    tree = SysfsTree(root)
    carriers = _with_lower(tree, interfaces)
    faults = [
        Fault(
            f"{NETDEVS}/{name}",
            "has a default route and is not there: is /sys of another network namespace?",
        )
        for name in interfaces
        if not tree.holds(f"{NETDEVS}/{name}")
    ]
    return replace(
        survey,
        functions=tuple(_routed(function, carriers) for function in survey.functions),
        faults=(*survey.faults, *tree.faults, *faults),
        routed=tuple(sorted(carriers.union(survey.routed or ()))),
    )


def merge_holders(survey: Survey, root: Path, holders: Mapping[str, str]) -> Survey:
    """The same for addresses of the node: `routed`, and `needed` of functions' interfaces.

    `holders` says by interface what the address is.
    """
    tree = SysfsTree(root)
    below = {
        name: word for top, word in sorted(holders.items()) for name in _with_lower(tree, [top])
    }
    return replace(
        survey,
        functions=tuple(_needed(function, below) for function in survey.functions),
        faults=(*survey.faults, *tree.faults),
        routed=None if survey.routed is None else tuple(sorted({*survey.routed, *below})),
    )


def _with_lower(tree: SysfsTree, interfaces: Collection[str]) -> frozenset[str]:
    """These interfaces and all that they stand on."""
    carriers: set[str] = set()
    pending = list(interfaces)
    while pending:
        name = pending.pop()
        if name not in carriers:
            carriers.add(name)
            pending += lower_netdevs(tree, name)
    return frozenset(carriers)


def _routed(function: Function, carriers: Collection[str]) -> Function:
    if not any(netdev.name in carriers for netdev in function.netdevs):
        return function
    netdevs = (replace(n, default_route=n.name in carriers) for n in function.netdevs)
    return replace(function, netdevs=tuple(netdevs))


def _needed(function: Function, words: Mapping[str, str]) -> Function:
    if not any(netdev.name in words for netdev in function.netdevs):
        return function

    def with_word(netdev: Netdev) -> Netdev:
        return replace(netdev, needed=words.get(netdev.name))

    return replace(function, netdevs=tuple(map(with_word, function.netdevs)))
