"""Links and routes of a network namespace as a doctor notes them: the node's, or a pod's.

Between programs/doctor and programs/doctor_pod, which both ask; the thread that calls says where.
"""

from __future__ import annotations

from kube_rdma.adapters.kernel.netlink.rtnl import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import interfaces, seen_links, seen_routes
from kube_rdma.model.observation import ObservedLink, ObservedRoute


def observed_links() -> tuple[ObservedLink, ...]:
    """The links of this thread's namespace; raise Unavailable."""
    with open_rtnl() as netlink:
        links = seen_links(netlink)
        carriers = {one.seen.index: one.carrier for one in interfaces(netlink)}
    names = {link.index: link.name for link in links}
    return tuple(
        ObservedLink(
            name=link.name,
            mtu=link.mtu,
            up=link.up,
            carrier=carriers.get(link.index),
            kind=link.kind,
            parent=names.get(link.parent or 0, ""),
            pci=link.pci or "",
            addresses=tuple(f"{address}/{length}" for address, length in link.addresses),
        )
        for link in links
    )


def observed_routes() -> tuple[ObservedRoute, ...]:
    """Its unicast routes; raise Unavailable."""
    with open_rtnl() as netlink:
        routes = seen_routes(netlink, seen_links(netlink))
    return tuple(
        ObservedRoute(one.name, str(one.to), str(one.via or ""), one.table or 0) for one in routes
    )
