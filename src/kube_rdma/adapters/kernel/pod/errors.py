"""Makes the errors of failed Steps: who has to act, and what to do.

A table leads from the kernel's errno to the remedy; the fake uses the same functions.
Where the kernel gives a number and no sentence, the values of the Step say what it means.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_rdma.model.attach import steps
from kube_rdma.model.device import PciAddress, PlannedHostLink, PortState
from kube_rdma.model.errors import HardwareGone
from kube_rdma.model.ipam import Address
from kube_rdma.model.pools import FunctionPlace

_REMEDIES: Mapping[int, str] = {
    errno.EINVAL: "Ask for what this kind of link and its card allow",
    errno.ERANGE: "Ask for a value that the card allows",
    errno.EEXIST: "Choose a name that is free",
    errno.EADDRINUSE: "Choose a MAC that is free on this card",
    errno.EADDRNOTAVAIL: "Choose a unicast MAC, one that the card lets this interface have",
    errno.ENOTUNIQ: "Choose a partition key that this card has no link for yet",
    errno.EOPNOTSUPP: "Load the kernel module of this kind, or choose another kind",
    errno.EPERM: "Give the agent CAP_NET_ADMIN; where it has it, this link does not allow it",
    errno.EACCES: "Allow IPv6 in the pod (net.ipv6.conf.*.disable_ipv6), or give no IPv6 address",
    errno.ENETUNREACH: "Give the interface an address in the subnet of the gateway",
    errno.EHOSTUNREACH: "Give the interface an address in the subnet of the gateway",
    errno.EAFNOSUPPORT: "Use a family of addresses that this kernel has",
    errno.EPROTONOSUPPORT: "Load the kernel module ib_core",
}
"""The remedy of a Refused, by errno. Any other (ENODEV, EBUSY, ENOMEM, …) is Unavailable."""

ETHERNET, INFINIBAND = 1, 32  # ARPHRD_*, include/uapi/linux/if_arp.h


def errno_of(error: BaseException) -> int | None:
    """Return the errno of a netlink error, None if it has none."""
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def judged(act: str, error: Unavailable) -> KubeError:
    """Return the error for an `act` that the kernel refused: Refused if there is a remedy.

    Without a remedy it is Unavailable. The kernel's sentence is kept.
    """
    remedy = _REMEDIES.get(errno_of(error) or 0)
    if remedy is None:
        return Unavailable(f"{act}: {error}")
    return Refused(f"{act}: {error}", remedy=remedy)


def mtu_too_large(name: str, mtu: int, parent: str, most: int) -> Refused:
    """Return the error for a virtual link's MTU that is larger than its parent's."""
    return Refused(
        f"{name} cannot have an MTU of {mtu}: {parent} below it has {most}",
        remedy=f"Ask for at most {most}, or raise the MTU of {parent}",
    )


def invalid_link(step: steps.MakeLink, parent_mtu: int, hardware: int) -> Refused | None:
    """Return the error for a new link that its parent does not allow, by the parent's MTU and type.

    Return None if these explain nothing.
    """
    if step.kind.value in {"macvlan", "ipvlan"} and hardware == INFINIBAND:
        return Refused(
            f"{step.kind} {step.name} cannot be made: {step.parent.name} is InfiniBand",
            remedy="Use the kind ipoib on it, or a virtual function of its own",
        )
    if step.kind.value == "ipoib" and hardware == ETHERNET:
        return Refused(
            f"ipoib {step.name} cannot be made: {step.parent.name} is Ethernet",
            remedy="Use the kind macvlan on it",
        )
    if step.mtu is not None and step.mtu > parent_mtu:
        return mtu_too_large(step.name, step.mtu, step.parent.name, parent_mtu)
    return None


def busy_parent(act: str, step: steps.MakeLink, error: Unavailable) -> Unavailable | None:
    """Return the error for EBUSY on a new macvlan or ipvlan: its parent has another use.

    Return None for another error or kind. See netdev_is_rx_handler_busy in macvlan_port_create and
    ipvlan_port_create. The other use may end by itself.
    """
    other = {"macvlan": "ipvlan", "ipvlan": "macvlan"}.get(step.kind.value)
    if errno_of(error) != errno.EBUSY or other is None:
        return None
    why = f"{step.parent.name} has {other} interfaces of other pods, or is in a bond or bridge"
    return Unavailable(f"{act}: {error}; {why}: use one type for all networks on this card")


def name_taken(step: steps.MakeLink | steps.TakeLink | steps.SetLink, by: str) -> Refused:
    """Return the error for a name that another interface of the pod has."""
    return Refused(
        f"the pod has an interface {step.name} already, {by}",
        remedy="Choose another name for the interface in the pod's annotation",
    )


def no_link_here(name: str) -> Unavailable:
    """Return the error for an interface that the pod does not have, or no longer has."""
    return Unavailable(f"the pod has no interface {name}")


def no_carrier(step: steps.Probe, seconds: float) -> Unavailable:
    """Return the error for an interface without carrier, over which no host can be asked."""
    return Unavailable(
        f"{step.name} has no carrier after {seconds:g} s, so the network cannot be asked about "
        f"{step.address}"
    )


def address_in_use(step: steps.Probe, mac: str) -> Refused:
    """Return the error for an address that another host of the network has."""
    return Refused(
        f"{step.address} is in use already: {mac} answers for it on the network of {step.name}",
        remedy="Find out who has this MAC, see `kube-rdma ip check`",
    )


def no_parent(parent: PlannedHostLink) -> Unavailable:
    """Return the error for a virtual link whose parent interface is gone."""
    return Unavailable(f"the node has no interface {parent.name} (index {parent.index}) any more")


def no_physical(place: FunctionPlace) -> HardwareGone:
    """Return the error for a physical function whose interface is not on the node."""
    return HardwareGone(
        f"the node has no interface {place.physical.name} of {place.pci} any more, through which "
        f"its virtual function {place.number} is set up"
    )


def no_function(place: FunctionPlace, count: int) -> Unavailable:
    """Return the error for a virtual function that its physical one no longer has."""
    return Unavailable(
        f"{place.physical.name} has no virtual function {place.number} any more: it has {count}"
    )


def setting_refused(place: FunctionPlace, what: str, error: Unavailable) -> KubeError:
    """Return the error for a setting that the driver of the physical function does not take."""
    name = place.physical.name
    code = errno_of(error)
    if code in (errno.EOPNOTSUPP, errno.EPROTONOSUPPORT):
        return Refused(
            f"{name} takes no {what} for its virtual functions: its driver has no such setting",
            remedy="Remove it from the network, or use a card that has it",
        )
    act = f"virtual function {place.number} of {name}, {what}"
    if code in (errno.EINVAL, errno.ERANGE):
        remedy = "Ask for what the card allows; rates need a link, and fit into its speed"
        return Refused(f"{act}: {error}", remedy=remedy)
    return judged(act, error)


def lost(link: PlannedHostLink, name: str, *, for_good: bool = False) -> HardwareGone:
    """Return the error for a card's link that is neither in the pod nor on the node.

    A link is in neither place for a moment after the end of a namespace. `for_good` says that the
    card is not in the machine any more.
    """
    sentence = f"{link.name} is neither in the pod (as {name}) nor on the node now"
    return HardwareGone(sentence, for_good=for_good)


def old_name_taken(undo: steps.GiveBackLink, now: str) -> Broken:
    """Return the error for a card's old name that another interface of the node has."""
    return Broken(
        f"{now} cannot be called {undo.link.name} again: the node has another interface of this "
        "name; rename one of them"
    )


def rdma_taken(name: str, on: str, other: str | None) -> Refused:
    """Return the error for a soft device on an interface that has the device `other` already.

    Without `other`, the name is that of another interface's device.
    """
    by = f"it has {other} already" if other else "a device of this name is on another interface"
    return Refused(
        f"the soft RDMA device {name} cannot be made on {on}: {by}",
        remedy="Remove the other one with rdma link delete",
    )


def unmovable(device: str) -> Refused:
    """Return the error for an RDMA device that the kernel refuses to move (EOPNOTSUPP)."""
    return Refused(
        f"the RDMA device {device} cannot be moved into the pod: the node's devices are shared by "
        "all namespaces, or it is a soft device",
        remedy="Boot the node with ib_core.netns_mode=0, or choose a mode that shares devices",
    )


def namespace_gone() -> Unavailable:
    """Return the error for a pod whose network namespace is gone."""
    return Unavailable("the pod's network namespace is gone")


def no_rdma() -> Unavailable:
    """Return the error for a kernel without the netlink family NETLINK_RDMA."""
    return Unavailable("the kernel offers no RDMA netlink; is ib_core loaded?")


def no_device(device: str) -> Unavailable:
    """Return the error for an RDMA device that is gone, or in another namespace."""
    return Unavailable(f"there is no RDMA device {device}")


def no_partition(step: steps.AwaitPartition, pkeys: Sequence[int]) -> Refused:
    """Return the error for a port that the subnet manager has not made a member of a partition."""
    has = ", ".join(f"0x{key:04x}" for key in pkeys) or "none"
    return Refused(
        f"the port of {step.pci} is not in the partition 0x{step.pkey:04x}: its table has {has}",
        remedy="Add its port GUID to the partition at the subnet manager, or write another pkey",
        where="pkey",
    )


def inactive_port(pci: PciAddress, states: Sequence[str], seconds: float) -> Refused:
    """Return the error for an InfiniBand port that carries no traffic after `seconds`."""
    has = ", ".join(states) or "gone"
    remedy = (
        "Let the subnet manager activate virtual ports (opensm: virt_enabled 2), and see its log"
    )
    if PortState.DOWN in states:
        remedy = (
            'Check the card\'s own port, and write "link_state": "auto" into the network; then the '
            "subnet manager activates it"
        )
    problem = f"the port of {pci} is {has} after {seconds:g} s, so the pod could reach no peer"
    return Refused(problem, remedy=remedy, where="InfiniBand")


def table_full(device: str, address: Address, used: int, size: int) -> Refused:
    """Return the error for a GID table without room for one more GID."""
    return Refused(
        f"{device} has no room for a GID of {address}: {used} of {size} GIDs are used",
        remedy="Take addresses off its interfaces, or give fewer pods a share of this card",
    )


def no_gid(device: str, address: Address, on: str, seconds: float) -> Unavailable:
    """Return the error for a GID that the kernel did not make within `seconds`."""
    return Unavailable(f"{device} lists no RoCE v2 GID for {address} on {on} after {seconds:g} s")
