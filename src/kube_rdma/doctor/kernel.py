"""Links and routes of a network namespace as a doctor notes them: the node's, or a pod's.

Between doctor/evidence and doctor/pod, which both ask; the thread that calls says
where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_rdma.adapters.kernel.netlink.rtnl import open_rtnl
from kube_rdma.adapters.kernel.netlink.rtnl_read import interfaces, seen_links, seen_routes
from kube_rdma.model.attach.pod_view import SeenLink
from kube_rdma.model.doctor import ObservedLink, ObservedRoute


def observed_links(below: Mapping[int, str] | None = None) -> tuple[ObservedLink, ...]:
    """The links of this thread's namespace; raise Unavailable.

    `below` are the node's names by index, for a namespace of a pod.
    """
    with open_rtnl() as netlink:
        links = seen_links(netlink)
        carriers = {one.seen.index: one.carrier for one in interfaces(netlink)}
    return noted(links, carriers, below)


def noted(
    links: Sequence[SeenLink],
    carriers: Mapping[int, bool | None],
    below: Mapping[int, str] | None = None,
) -> tuple[ObservedLink, ...]:
    """The links with the names of their parents.

    A parent is told by index alone, and indexes of two namespaces may be equal: of a pod's link,
    one that could be either has no name.
    """
    own = {link.index: link.name for link in links}
    names = own if below is None else {at: name for at, name in below.items() if at not in own}
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


def node_indexes() -> dict[int, str]:
    """The names of this thread's links by index; raise Unavailable."""
    with open_rtnl() as netlink:
        return {one.seen.index: str(one.seen.name) for one in interfaces(netlink)}


def observed_routes() -> tuple[ObservedRoute, ...]:
    """Its unicast routes; raise Unavailable."""
    with open_rtnl() as netlink:
        routes = seen_routes(netlink, seen_links(netlink))
    return tuple(
        ObservedRoute(one.name, str(one.to), str(one.via or ""), one.table or 0) for one in routes
    )
