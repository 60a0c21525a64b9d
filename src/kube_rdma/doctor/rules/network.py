"""KR3xx: finds what stands between a card and its peers: MTU, routes, neighbours, CNI, addresses.

Its checks come after cards and kubelet. attach/rules/conflist judges whether the CNI folder can be
served.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from shlex import quote

from kube_rdma.doctor.rules.check import Check, interfaces_of, unrouted
from kube_rdma.doctor.rules.errors import below_peers
from kube_rdma.doctor.rules.meant import meant, survey_of
from kube_rdma.lib.phrases import listed
from kube_rdma.model.doctor import AddressUse, Observation, ObservedCni, ObservedLink
from kube_rdma.model.finding import Finding, Severity

_STRICT = "1"  # of rp_filter: the way back has to lead through the same interface
_REMEDY = "Upgrade Cilium (1.14 or newer) with --set cni.exclusive=false"


def _mtu(seen: Observation) -> Iterator[Finding]:
    """Bandwidth of a rail is low, and `ibv_devinfo` shows active_mtu 1024."""
    mtus = {link.name: link.mtu for link in _rails(seen)}
    for _, port, widest in below_peers(seen, lambda port: mtus.get(port.netdev or "")):
        name = port.netdev or ""
        yield Finding(
            name,
            f"MTU {mtus[name]}, and {widest:g} on other cards of its kind",
            "RoCE takes the largest MTU of 256 to 4096 that fits the MTU of the interface",
            f"ip link set {quote(name)} mtu {widest:g}; switches and peers need it too",
            Severity.WARNING,
        )


def _one_subnet(seen: Observation) -> Iterator[Finding]:
    """Ping works, RDMA hangs."""
    by_subnet: dict[str, list[str]] = {}
    for rail in _rails(seen):
        for at in interfaces_of(rail.addresses):
            if at.version == 4:
                by_subnet.setdefault(str(at.network), []).append(rail.name)
    for subnet, names in by_subnet.items():
        loose = [name for name in names if _setting(seen, name, "arp_ignore") == 0]
        if len(names) > 1 and loose:
            yield Finding(
                subnet,
                f"{listed(names)} are in {subnet}, with arp_ignore 0 on {listed(loose)}",
                "Interfaces answer ARP for each other: traffic arrives on another rail",
                "Give each rail a subnet, or set arp_ignore=2 and arp_announce=2 with ip rules",
                Severity.WARNING,
            )


def _strict_filter(seen: Observation) -> Iterator[Finding]:
    """Peers are unreachable over some rails. Of interface and `all` the larger rp_filter counts."""
    rails = [rail for rail in _rails(seen) if rail.addresses]
    for rail in rails if len(rails) > 1 else ():
        if _setting(seen, rail.name, "rp_filter") == int(_STRICT):
            evidence = f"rp_filter is {_STRICT} (strict) on {rail.name}"
            cause = "Packets are dropped where the way back is another rail"
            remedy = f"sysctl -w net.ipv4.conf.{quote(rail.name)}.rp_filter=2"
            yield Finding(rail.name, evidence, cause, remedy, Severity.WARNING)


def _no_route(seen: Observation) -> Iterator[Finding]:
    """`rdma_resolve_route` fails, or goes over another interface."""
    for rail in _rails(seen):
        for address in unrouted(rail, seen.routes or ()) if rail.up else ():
            evidence = f"{address} is on {rail.name}, and no route to its subnet is"
            cause = "The rail's peers are sought on another interface"
            remedy = f"ip route add SUBNET dev {rail.name} src {address.partition('/')[0]}"
            yield Finding(rail.name, evidence, cause, remedy)


def _neighbours(seen: Observation) -> Iterator[Finding]:
    """Connections to one peer time out."""
    names = {rail.name for rail in _rails(seen)}
    for name in sorted(names):
        silent = [
            one.address
            for one in seen.neighbours or ()
            if one.interface == name and not one.answered
        ]
        if silent:
            evidence = f"{listed(silent)} did not answer ARP"
            cause = "The peer is down, in another VLAN or subnet, or the switch drops ARP"
            remedy = f"ping -I {name} {silent[0]}; look at VLAN and address of both ends"
            yield Finding(name, evidence, cause, remedy, Severity.WARNING)


def _cni_refused(seen: Observation) -> Iterator[Finding]:
    """The agent attaches no networks. An Event of the node says why."""
    cni = _cni(seen)
    if cni.installed and cni.refused:
        evidence, _, remedy = cni.refused.rstrip(".").rpartition(". ")
        cause = "The node's CNI configuration cannot be served"
        yield Finding("CNI", evidence or cni.refused, cause, remedy or "Change the file")


def _cni_owned(seen: Observation) -> Iterator[Finding]:
    """Pods start without networks: kube-rdma appears in the conflist and is removed again."""
    cni = _cni(seen)
    if not cni.installed or not (cni.aside or (cni.guard and cni.pending)):
        return
    acts = f"{listed(cni.aside)} was put aside" if cni.aside else ""
    evidence = acts or f"{cni.default} is without kube-rdma, and of {cni.guard}"
    cause = "Cilium keeps every other plugin out of the folder (cni.exclusive)"
    yield Finding("CNI", evidence, cause, _REMEDY)


def _cni_rewritten(seen: Observation) -> Iterator[Finding]:
    """Pods start without their networks."""
    cni = _cni(seen)
    if cni.installed and cni.pending and not cni.refused:
        entry = cni.default or "the cluster's list"
        evidence = f"kube-rdma is not in {entry} as it has to be"
        cause = "Another program wrote the file, and no agent mended it"
        remedy = "See that the agent runs, and its Event NetworkConfigurationRefused"
        yield Finding("CNI", evidence, cause, remedy)


def _duplicates(seen: Observation) -> Iterator[Finding]:
    """Connections break from time to time, and ARP entries flap."""
    holders: dict[tuple[str, str], list[AddressUse]] = {}
    for use in seen.uses or ():
        holders.setdefault((use.network, _bare(use.address)), []).append(use)
    for (network, address), uses in holders.items():
        pods = sorted({use.pod for use in uses})
        if len(pods) > 1 and (seen.pod is None or seen.pod.title in pods):
            yield Finding(
                address,
                f"{listed(pods)} have {address} on {network}",
                "Two plugins, or two pools of one range, give this address",
                "Delete one pod; give the network one IPPool: kube-rdma ip check",
            )


def _wrong_subnet(seen: Observation) -> Iterator[Finding]:
    """The pod reaches no peer on this rail."""
    ranges = {one.network: one.subnets for one in seen.ranges or ()}
    own = seen.pod.attached if seen.pod else None
    for use in own or seen.uses or ():
        subnets = ranges.get(use.network)
        address = _bare(use.address)
        if subnets and not any(_may_be_inside(address, subnet) for subnet in subnets):
            yield Finding(
                f"{use.pod}/{use.interface}",
                f"{address} is in none of {listed(subnets)} ({use.network})",
                "The address is of another network, or the IPPool changed while the pod ran",
                "Delete the pod; the next one gets another address",
            )


def _rails(seen: Observation) -> list[ObservedLink]:
    """Return the node's links whose RDMA devices pods may get."""
    devices = meant(seen)
    cards = (one for one in survey_of(seen).devices if one.name in devices)
    names = {port.netdev for device in cards for port in device.ports}
    return [link for link in seen.links or () if link.name in names]


def _setting(seen: Observation, interface: str, sysctl: str) -> int | None:
    """Return the value in force of a sysctl of an interface, None where it was not seen.

    It is the larger of the interface's value and that of `all` (ip-sysctl).
    """
    values = dict(seen.settings or ())
    words = (values.get(f"net/ipv4/conf/{name}/{sysctl}", "") for name in ("all", interface))
    numbers = [int(text) for text in words if text.isdecimal()]
    return max(numbers) if len(numbers) == 2 else None


def _cni(seen: Observation) -> ObservedCni:
    assert seen.cni is not None
    return seen.cni


def _bare(address: str) -> str:
    return address.partition("/")[0]


def _may_be_inside(address: str, subnet: str) -> bool:
    """Return whether an address is in a subnet; True if either text cannot be parsed."""
    try:
        return ip_address(address) in ip_network(subnet, strict=False)
    except ValueError:
        return True


_LINKS = ("survey", "links")

CHECKS = (
    Check("KR301", "MTU of cards", _LINKS, _mtu),
    Check("KR302", "subnets of rails", (*_LINKS, "settings"), _one_subnet),
    Check("KR303", "reverse path", (*_LINKS, "settings"), _strict_filter),
    Check("KR304", "routes of rails", (*_LINKS, "routes"), _no_route),
    Check("KR305", "neighbours", (*_LINKS, "neighbours"), _neighbours),
    Check("KR310", "CNI configuration", ("cni",), _cni_refused, ("KR490",), ("KR403",)),
    Check("KR311", "owner of CNI", ("cni",), _cni_owned, ("KR312", "KR490"), ("KR403",)),
    Check("KR312", "CNI entry", ("cni",), _cni_rewritten, ("KR490",), ("KR403",)),
    Check("KR320", "duplicate addresses", ("uses",), _duplicates),
    Check("KR321", "subnet of addresses", ("uses", "ranges"), _wrong_subnet),
)
