"""Reads what interfaces of the node are used for: addresses, routes, what stands on them.

agent/changes asks before virtual functions go, and pools/rules/functions decides. For cards that
pools move into pods, pools/rules/selection decides which are spared. An interface about which sysfs
and routing netlink disagree is left out: /sys may be another namespace's. A macvlan inside a pod is
seen only by its MAC, for which its parent takes frames (macvlan_open in drivers/net/macvlan.c,
ndo_dflt_fdb_dump in net/core/rtnetlink.c).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from socket import AF_BRIDGE

from kube_rdma.adapters.kernel.netlink import rtnl_read
from kube_rdma.adapters.kernel.netlink.codec import split
from kube_rdma.adapters.kernel.sysfs.netdev import upper_netdevs
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.model.attach.attachment import SeenLink
from kube_rdma.model.attach.steps import AddRoute, AddRule
from kube_rdma.model.card import Use
from kube_rdma.model.ipam import Address, Subnet

NFS_SERVERS = Path("/proc/self/net/nfsfs/servers")
_GETNEIGH = 30
_NEIGHBOUR = struct.Struct("=BxxxiHBB")  # struct ndmsg: family, index, state, flags, type
_LLADDR = 2  # NDA_LLADDR
_SELF = 0x2  # NTF_SELF: an entry of the interface's own, not of a bridge
_GROUP_BIT = 0x01  # in the first octet of a MAC


def read_uses(
    names: Collection[str], sysfs: Path | None = None, nfs: Path = NFS_SERVERS
) -> dict[str, Use]:
    """Return what the node uses each interface for; leave out interfaces of other namespaces.

    Raise Unavailable when the kernel does not answer.
    """
    tree = SysfsTree(sysfs)
    with rtnl_read.open_rtnl() as netlink:
        every = rtnl_read.seen_links(netlink)
        links = [link for link in every if link.name in names and _same(tree, link)]
        routes = [one for one in rtnl_read.seen_routes(netlink, every) if not one.to.is_link_local]
        rules = rtnl_read.seen_rules(netlink)
        dynamic = rtnl_read.dynamic_addresses(netlink)
        # Unicast addresses that interfaces receive for besides their own.
        answers = netlink.ask(_GETNEIGH, _NEIGHBOUR.pack(AF_BRIDGE, 0, 0, 0, 0), dump=True)
        guests = [guest for answer in answers for guest in decode_guest(answer)]
    storage = [(what, _way(routes, server)) for what, server in storage_servers(tree, nfs)]
    return {
        link.name: Use(
            addresses=tuple(f"{a}/{length}" for a, length in _own(link)),
            dynamic=tuple(f"{a}/{n}" for a, n in _own(link) if (link.index, a) in dynamic),
            routes=tuple(str(route.to) for route in routes if route.name == link.name),
            above=upper_netdevs(tree, link.name),
            guests=tuple(mac for index, mac in guests if index == link.index),
            beyond=tuple(_beyond(link, routes, rules)),
            storage=tuple(what for what, name in storage if name == link.name),
        )
        for link in links
    }


def _own(link: SeenLink) -> Iterator[tuple[Address, int]]:
    """Return the addresses of a link, except link-local ones."""
    return (pair for pair in link.addresses if not pair[0].is_link_local)


def _beyond(link: SeenLink, routes: Sequence[AddRoute], rules: Sequence[AddRule]) -> Iterator[str]:
    """Yield the routes that lead further than the subnets of the link's own addresses.

    A table that is looked up only for packets from one of these addresses is the card's own. Each
    rail of a routed fabric has one; every other table than main is the node's. The subnet of an
    address of full length is that of the narrowest route to it, with that route's next hop.
    """
    own = {ip_network((address, length), strict=False) for address, length in link.addresses}
    own |= set(_around(link, routes))
    tables = {rule.table for rule in rules if rule.source in {a for a, _ in link.addresses}}
    for route in routes:
        if route.name != link.name or route.table in tables:
            continue
        if route.table is not None or route.to not in own:
            yield str(route.to) if route.table is None else f"{route.to} (table {route.table})"


def _around(link: SeenLink, routes: Sequence[AddRoute]) -> Iterator[Subnet]:
    """Yield the subnet around each single-host address of a link, and the next hop there."""
    mine = [route for route in routes if route.name == link.name and route.table is None]
    for address, length in link.addresses:
        around = [r for r in mine if address in r.to and 0 < r.to.prefixlen < r.to.max_prefixlen]
        if length == address.max_prefixlen and around:
            narrowest = max(around, key=lambda route: route.to.prefixlen)
            yield narrowest.to
            if narrowest.via:
                yield ip_network(narrowest.via)


def _way(routes: Sequence[AddRoute], server: Address) -> str | None:
    """Return the interface of the main table's best route to an address; None without one."""
    ways = [one for one in routes if one.table is None and server in one.to]
    return max(ways, key=lambda way: way.to.prefixlen).name if ways else None


def _same(tree: SysfsTree, link: SeenLink) -> bool:
    """Return whether the link of this name in sysfs is the same as this one."""
    place = f"class/net/{link.name}"
    index = tree.text(f"{place}/ifindex", required=False)
    return (index, tree.text(f"{place}/address", required=False)) == (str(link.index), link.mac)


def decode_guest(payload: bytes) -> Iterator[tuple[int, str]]:
    """Yield index and MAC of a neighbour in an answer to GETNEIGH; skip multicast and bridges."""
    (family, index, _, flags, _), attributes = split(_NEIGHBOUR, payload)
    mac = attributes.get(_LLADDR, b"")
    if family == AF_BRIDGE and flags & _SELF and mac and not mac[0] & _GROUP_BIT:
        yield index, mac.hex(":")


_NFS = re.compile(r"v\d+ ([0-9a-f]{8}|[0-9a-f]{32}) ")  # as RPC_DISPLAY_HEX_ADDR prints it
_NVME = re.compile(r"\btraddr=([0-9a-fA-F.:]+)")
_LUSTRE = re.compile(r"MGC([0-9a-fA-F.:]+)@\w+")


def storage_servers(tree: SysfsTree, nfs: Path = NFS_SERVERS) -> Iterator[tuple[str, Address]]:
    """Yield description and address of the servers of NFS, NVMe over fabrics and Lustre in use.

    NFS lists its servers for each network namespace (nfs_server_list_show, fs/nfs/client.c). NVMe
    over fabrics has them in sysfs (nvme_sysfs_show_address, drivers/nvme/host/sysfs.c). Lustre
    names its management client after the server's LNet address. Other storage is not seen.
    """
    yield from _nfs(nfs)
    for name in tree.names("class/nvme", required=False):
        match = _NVME.search(tree.text(f"class/nvme/{name}/address", required=False) or "")
        yield from _called(name, match[1] if match else "")
    for name in tree.names("fs/lustre/mgc", required=False):
        match = _LUSTRE.fullmatch(name)
        yield from _called("Lustre", match[1] if match else "")


def _nfs(servers: Path) -> Iterator[tuple[str, Address]]:
    lines: list[str] = []
    with suppress(OSError):
        lines = servers.read_text(errors="replace").splitlines()
    for match in filter(None, map(_NFS.match, lines)):
        number, wide = int(match[1], 16), len(match[1]) > 8
        address = IPv6Address(number) if wide else IPv4Address(number)
        yield f"NFS of {address}", address


def _called(what: str, text: str) -> Iterator[tuple[str, Address]]:
    """Yield a server's description and IP address; nothing if `text` is no IP address.

    A local NVMe disk has no address, Fibre Channel has one of another kind.
    """
    with suppress(ValueError):
        yield f"{what} of {text}", ip_address(text)
