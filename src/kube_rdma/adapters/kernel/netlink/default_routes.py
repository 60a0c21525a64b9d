"""Which network functions the node itself is reached through: those below its default routes.

programs/survey joins it to the Survey, so that no rule gives such a card away. Routing netlink
names the interfaces; sysfs says what a bond, vlan or bridge among them stands on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from kube_rdma.adapters.kernel.netlink.rtnl import default_interfaces, open_rtnl
from kube_rdma.adapters.kernel.sysfs.functions import NETDEVS
from kube_rdma.adapters.kernel.sysfs.netdev import lower_netdevs
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.card import Function
from kube_rdma.model.errors import Unavailable
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


def merge_routes(survey: Survey, root: Path, interfaces: Collection[str]) -> Survey:
    """The Survey with `routed`, and default_route of every function's interface that is among them.

    An interface carries the route of whatever stands on it: every slave of a bond, every port of a
    bridge, the parent of a vlan (class/net/X/lower_* below `root`). An interface that the tree does
    not show is a fault, for then the routes may be those of another network namespace.
    """
    tree = SysfsTree(root)
    carriers: set[str] = set()
    pending = list(interfaces)
    while pending:
        name = pending.pop()
        if name not in carriers:
            carriers.add(name)
            pending += lower_netdevs(tree, name)
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
        routed=frozenset(carriers),
        faults=(*survey.faults, *tree.faults, *faults),
    )


def _routed(function: Function, carriers: Collection[str]) -> Function:
    if not any(netdev.name in carriers for netdev in function.netdevs):
        return function
    netdevs = (replace(n, default_route=n.name in carriers) for n in function.netdevs)
    return replace(function, netdevs=tuple(netdevs))
