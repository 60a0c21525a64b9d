"""Makes and removes links, addresses, routes and rules of one pod, and sets its sysctls.

PodLinks has two sockets: one bound to the node's namespace, one to the pod's. steps.py calls a
method for each Step; requests are rtnl_write's, looks rtnl_read's. What makes or sets a link sends
its request first, and looks for what stands in the way after a refusal.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field, replace
from kube_base.os_files import closed_after
from kube_rdma.adapters.kernel.netlink import rtnl_read, rtnl_write
from kube_rdma.adapters.kernel.netlink.codec import Netlink
from kube_rdma.adapters.kernel.netlink.rtnl_write import NetlinkRequest
from kube_rdma.adapters.kernel.pod import errors
from kube_rdma.adapters.kernel.pod.namespaces import Namespace, open_inside
from kube_rdma.model.attach import steps
from kube_rdma.model.ipam import InterfaceName

# igbvf, ixgbevf and iavf say so when the physical function has not allowed a MAC.
_NOT_THIS_MAC = frozenset({errno.EADDRNOTAVAIL, errno.EPERM, errno.EACCES})
_NOT_AT_ONCE = frozenset({errno.ENODEV, errno.EOPNOTSUPP})
_LOOKS = 3  # at a link that gets names from somebody else, too
_PCI = Path("/sys/bus/pci/devices")
_OURS = frozenset(kind.value for kind in steps.VirtualKind)  # never a card's own link


class PodLinks(Frozen):
    """The network links, addresses, routes and rules of one pod, with calls that change them.

    `namespace` and `home` are descriptors of the pod's and the node's namespace.
    """

    node: Netlink
    pod: Netlink
    namespace: int
    home: int
    _seen: dict[InterfaceName, rtnl_read.Interface] = field(default_factory=dict)

    def make(self, step: steps.MakeLink) -> None:
        """Make a link and mark it as this attachment's; do nothing if that is done already."""
        self._seen.clear()
        try:
            self._send_new(step)
        except Unavailable as error:
            if errors.errno_of(error) != errno.EEXIST:
                raise self._not_made(step, error) from error
            existing = rtnl_read.interface_named(self.pod, step.name)
            if existing is None:
                self._make_apart(step)
            elif not existing.ours(step.mark):
                raise errors.name_taken(step, described(existing)) from error
            elif existing.seen.alias:
                return
        _send(self.pod, rtnl_write.mark_link(step), f"marking {step.name}")

    def _make_apart(self, step: steps.MakeLink) -> None:
        """Make a link under a temporary name, since the node has one of that name, and rename it.

        Before Linux 6.15 the kernel looks for the new name where the request comes from
        (rtnl_newlink, net/core/rtnetlink.c).
        """
        interim = replace(step, name=rtnl_write.interim_name(step.mark))
        try:
            self._send_new(interim)
        except Unavailable as error:
            if errors.errno_of(error) != errno.EEXIST:  # else its maker died before it was renamed
                raise self._not_made(step, error) from error
        rename = rtnl_write.rename_link(self.link(interim.name).seen.index, step.name)
        _send(self.pod, rename, f"naming {step.kind} {step.name}")

    def _send_new(self, step: steps.MakeLink) -> None:
        """Request a new link; the index of a parent inside the pod is looked up there."""
        if not step.inside:
            _send(self.node, rtnl_write.make_link(step, self.namespace))
            return
        index = self.link(InterfaceName(step.parent.name)).seen.index
        here = replace(step, parent=replace(step.parent, index=index))
        _send(self.pod, rtnl_write.make_link(here, self.namespace))

    def take(self, step: steps.TakeLink) -> None:
        """Move a card's link into the pod and rename it, unless that is done already."""
        self._seen.clear()
        inside = rtnl_read.interfaces(self.pod)
        link_in_pod = pick(inside, step, step.name)
        if link_in_pod and link_in_pod.seen.name == step.name:
            return
        for other in inside:
            if other is not link_in_pod and other.is_called(step.name):
                raise errors.name_taken(step, described(other))
        act = f"moving {step.link.name} into the pod as {step.name}"
        try:
            if link_in_pod:  # the kernel moves first: a try before ended between move and new name
                _free_name(self.pod, link_in_pod, step.name)
                _send(self.pod, rtnl_write.rename_link(link_in_pod.seen.index, step.name))
                return
            here = self._on_node(step)
            if here is None:
                raise errors.lost(step.link, step.name)
            _free_name(self.node, here, step.name)
            _send(self.node, rtnl_write.take_link(step, here.seen.index, self.namespace))
        except Unavailable as error:
            raise errors.judged(act, error) from error

    def set(self, step: steps.SetLink) -> None:
        """Set MAC and MTU of a link and bring it up, in one message by name.

        Where the driver refuses a MAC that the link has already, set the rest without it.
        """
        self._seen.clear()
        try:
            _send(self.pod, rtnl_write.set_link(step))
        except Unavailable as error:
            link = rtnl_read.interface_named(self.pod, step.name)
            if link is None:
                raise errors.no_link_here(step.name) from error
            has, wanted = link.seen.mac, (step.mac or "").lower()
            if wanted and has != wanted and errors.errno_of(error) in _NOT_THIS_MAC:
                has = _mac_after_reset(self.pod, link.seen.index)
            if not wanted or has != wanted:
                raise self._not_set(step, link, error) from error
            # Many a driver takes no MAC while its link is up, not even the one that it has.
            self.set(replace(step, mac=None))

    def add_address(self, step: steps.AddAddress) -> None:
        """Add an address to a link; do nothing if the link has it."""
        request = rtnl_write.add_address(step, self.link(step.name).seen.index)
        _send(self.pod, request, f"the address {step.address}/{step.prefix} on {step.name}")

    def add_route(self, step: steps.AddRoute) -> None:
        """Add a route, or replace that of the same destination, table and metric."""
        request = rtnl_write.add_route(step, self.link(step.name).seen.index)
        _send(self.pod, request, f"the route to {step.to} over {step.name}")

    def add_rule(self, step: steps.AddRule) -> None:
        """Add a routing rule, unless it exists (rule_exists, net/core/fib_rules.c)."""
        act = f"the rule for {step.source}"
        _send(self.pod, rtnl_write.add_rule(step), act, harmless=errno.EEXIST)

    def remove_rule(self, undo: steps.RemoveRule) -> None:
        """Remove a routing rule; do nothing if it does not exist."""
        act = f"removing the rule for {undo.source}"
        _send(self.pod, rtnl_write.remove_rule(undo), act, harmless=errno.ENOENT)

    def remove(self, undo: steps.RemoveLink) -> None:
        """Remove the links of the name and the temporary name that have the mark of `undo`."""
        self._seen.clear()
        for name in (undo.name, rtnl_write.interim_name(undo.mark)):
            link = rtnl_read.interface_named(self.pod, name)
            if link and link.ours(undo.mark):
                request = rtnl_write.remove_link(link.seen.index)
                _send(self.pod, request, f"removing {name}", harmless=errno.ENODEV)

    def remove_all(self, undo: steps.RemoveLinks) -> None:
        """Remove links at once by their group if the group has no others, else one by one.

        The kernel waits once for the group, and once for each single link.
        """
        self._seen.clear()
        wanted = {one.name: one for one in undo.links}
        wanted |= {rtnl_write.interim_name(one.mark): one for one in undo.links}
        inside = rtnl_read.interfaces(self.pod)
        grouped = {link.seen.name for link in inside if link.group == rtnl_write.GROUP}
        mine = {
            link.seen.name
            for link in inside
            if (one := wanted.get(link.seen.name)) and link.ours(one.mark)
        }
        if grouped and grouped <= mine:
            try:
                _send(self.pod, rtnl_write.remove_group())
                mine -= grouped
            except Unavailable as error:
                if errors.errno_of(error) not in _NOT_AT_ONCE:
                    raise errors.judged(f"removing {', '.join(sorted(grouped))}", error) from error
        for name in mine:
            self.remove(wanted[name])

    def give_back(self, undo: steps.GiveBackLink) -> None:
        """Move a link from the pod to the node under its old name, and restore its settings."""
        self._seen.clear()
        link = pick(rtnl_read.interfaces(self.pod), undo, undo.name, undo.link.name)
        if link:
            other = rtnl_read.interface_named(self.node, undo.link.name)
            if other:
                raise errors.old_name_taken(undo, f"{undo.name} in the pod")
            try:
                _free_name(self.pod, link, undo.link.name)
                # The kernel moves a link first and renames it then (do_setlink in
                # net/core/rtnetlink.c). On the node systemd-udevd would hear of `net1`, find no
                # such link any more to ask who has named it, and give the link, whatever it is
                # called by then, the name of its own policy. So it gets its old name before it
                # leaves, unless a link of the pod has that name.
                if link.seen.up:  # before Linux 6.2 only what is down is renamed
                    _send(self.pod, rtnl_write.set_down(link.seen.index))
                rename = rtnl_write.rename_link(link.seen.index, undo.link.name)
                _send(self.pod, rename, harmless=errno.EEXIST)
                _send(self.pod, rtnl_write.send_home(undo, link.seen.index, self.home))
            except Unavailable as error:
                act = f"moving {undo.name} back to the node as {undo.link.name}"
                raise errors.judged(act, error) from error
        restore_on_node(self.node, undo)

    def _on_node(self, step: steps.TakeLink) -> rtnl_read.Interface | None:
        """Return a card's link on the node, by its index at planning, else among all links."""
        here = rtnl_read.interface_at(self.node, step.link.index)
        if here and pick([here], step, step.link.name):
            return here
        return pick(rtnl_read.interfaces(self.node), step, step.link.name)

    def link(self, name: InterfaceName) -> rtnl_read.Interface:
        """Return a link of the pod by name; raise Unavailable if the pod has none.

        Links are cached until a method makes, moves, sets or removes one.
        """
        if name not in self._seen:
            link = rtnl_read.interface_named(self.pod, name)
            if link is None:
                raise errors.no_link_here(name)
            self._seen[name] = link
        return self._seen[name]

    def _not_made(self, step: steps.MakeLink, error: Unavailable) -> KubeError:
        parent = (
            rtnl_read.interface_named(self.pod, step.parent.name)
            if step.inside
            else rtnl_read.interface_at(self.node, step.parent.index)
        )
        if parent is None:
            return errors.no_parent(step.parent)
        reason = errors.invalid_link(step, parent.seen.mtu, parent.hardware)
        if reason and errors.errno_of(error) in {errno.EINVAL, errno.EOPNOTSUPP}:
            return reason
        act = f"{step.kind} {step.name} on {step.parent.name}"
        return errors.busy_parent(act, step, error) or errors.judged(act, error)

    def _not_set(
        self, step: steps.SetLink, link: rtnl_read.Interface, error: Unavailable
    ) -> KubeError:
        if step.mtu and link.seen.kind in _OURS and link.seen.parent:
            parent = rtnl_read.interface_at(self.node, link.seen.parent)
            if parent and parent.seen.mtu < step.mtu:
                return errors.mtu_too_large(step.name, step.mtu, parent.seen.name, parent.seen.mtu)
        return errors.judged(f"setting {step.name}", error)


def remove_returned(node: Netlink, undo: steps.RemoveLink | steps.RemoveLinks) -> None:
    """Remove a pod's virtual links that moved to the node when the pod's namespace ended.

    Most kinds end with the namespace. IPoIB interfaces return to the node, under their name or as
    devN (netns_refund in ipoib_link_ops, default_device_exit_net in net/core/dev.c).
    """
    marks = {one.mark for one in (undo.links if isinstance(undo, steps.RemoveLinks) else (undo,))}
    for link in rtnl_read.interfaces(node):
        if link.seen.virtual and any(map(link.ours, marks)):
            request = rtnl_write.remove_link(link.seen.index)
            _send(node, request, f"removing {link.seen.name}", harmless=errno.ENODEV)


def restore_on_node(node: Netlink, undo: steps.GiveBackLink) -> None:
    """Restore a link on the node: name, MTU, MAC, state, addresses, routes and rules.

    It also serves a pod whose namespace is gone. The kernel then brought the link back under the
    name that it had there, or as devN. Raise HardwareGone when it is not there (yet), Broken when
    another link has its name; then all except the name is restored.
    """
    links = rtnl_read.interfaces(node)
    here = pick(links, undo, undo.link.name, undo.name)
    if here is None:
        gone = undo.pci is not None and not (_PCI / undo.pci).exists()
        raise errors.lost(undo.link, undo.name, for_good=gone)
    now = here.seen
    renamed = now.name != undo.link.name
    taken = renamed and any(i is not here and i.is_called(undo.link.name) for i in links)
    act = f"restoring {undo.link.name} on the node"
    try:
        if (now.mtu, now.mac) != (undo.mtu, _mac_of(here, undo)) or (renamed and not taken):
            if now.up:  # while up, it takes no name before Linux 6.2, nor a MAC with many drivers
                _send(node, rtnl_write.set_down(now.index))
            if renamed and not taken:
                taken = not _rename(node, here, undo.link.name)
            _restore(node, here, undo)
        elif now.up != undo.up:
            _send(node, rtnl_write.restore_link(now.index, None, None, up=undo.up))
        for address, prefix in undo.addresses:  # one that it has already stays as it is
            step = steps.AddAddress(undo.name, address, prefix)
            _send(node, rtnl_write.add_address(step, now.index))
        # A link that is down has no routes (fib_create_nexthop wants IFF_UP,
        # net/ipv4/fib_semantics.c).
        for route in undo.routes if undo.up else ():
            _send(node, rtnl_write.add_route(route, now.index))
        for rule in undo.rules:
            _send(node, rtnl_write.add_rule(rule), harmless=errno.EEXIST)
    except Unavailable as error:
        raise errors.judged(act, error) from error
    if taken:
        raise errors.old_name_taken(undo, now.name)


def _rename(netlink: Netlink, link: rtnl_read.Interface, name: str) -> bool:
    """Rename a link and return whether it has the name now; another link may have taken it.

    systemd-udevd may also give the name to this very link, so a refusal is a reason to look again.
    """
    for _ in range(_LOOKS):
        try:
            _free_name(netlink, link, name)
            _send(netlink, rtnl_write.rename_link(link.seen.index, name))
        except Unavailable as error:
            if errors.errno_of(error) != errno.EEXIST:
                raise
        else:
            return True
        again = (
            each for each in rtnl_read.interfaces(netlink) if each.seen.index == link.seen.index
        )
        link = next(again, link)
        if not link.is_called(name):
            return False
    return False


def _free_name(netlink: Netlink, link: rtnl_read.Interface, name: str) -> None:
    """Remove an alternative name from a link that is to get it as its name.

    The kernel refuses the name otherwise (dev_get_valid_name, net/core/dev.c). systemd-udevd makes
    a link's predictable name an alternative one if the link comes to the node under another name.
    """
    if name in link.alternative_names:
        request = rtnl_write.remove_alternative_name(link.seen.index, name)
        _send(netlink, request, harmless=errno.ENOENT)


def _restore(node: Netlink, here: rtnl_read.Interface, undo: steps.GiveBackLink) -> None:
    """Restore MTU, MAC and state; a forbidden MAC is replaced by the one that the driver takes."""
    now = here.seen
    mtu = None if now.mtu == undo.mtu else undo.mtu
    mac = None if now.mac == _mac_of(here, undo) else undo.mac
    try:
        _send(node, rtnl_write.restore_link(now.index, mtu, mac, up=undo.up))
    except Unavailable as error:
        if mac is None or errors.errno_of(error) not in _NOT_THIS_MAC:
            raise
        _mac_after_reset(node, now.index)
        _send(node, rtnl_write.restore_link(now.index, mtu, None, up=undo.up))


def _mac_of(here: rtnl_read.Interface, undo: steps.GiveBackLink) -> str:
    """Return the MAC to restore: for IPoIB the present one, part of which the kernel changes."""
    return here.seen.mac if here.hardware == errors.INFINIBAND else undo.mac


def _mac_after_reset(netlink: Netlink, index: int) -> str:
    """Reset a virtual function's link; return the MAC that its driver then takes, "" if it is gone.

    The MAC is that of the physical function, and the driver may refuse it when it is set. It takes
    the MAC when it resets, as its link goes down (igbvf_set_mac, igbvf_down, igbvf_reset in
    drivers/net/ethernet/intel/igbvf/netdev.c).
    """
    _send(netlink, rtnl_write.restore_link(index, None, None, up=True))
    _send(netlink, rtnl_write.set_down(index))
    now = rtnl_read.interface_at(netlink, index)
    return now.seen.mac if now else ""


def pick(
    links: Iterable[rtnl_read.Interface], card: steps.TakeLink | steps.GiveBackLink, *names: str
) -> rtnl_read.Interface | None:
    """Return the card's own link among these, None if it is missing.

    The PCI function decides. The kernel does not name one for every link (virtio, Linux before
    5.14). Then two of index, MAC and name have to agree, since each alone may be another's.
    """

    def agreement(link: rtnl_read.Interface) -> int:
        macs = {link.seen.mac, link.permanent_mac}
        index = link.seen.index == card.link.index
        return index + (card.mac in macs) + (link.seen.name in names)

    own = [link for link in links if not link.seen.virtual]
    on_card = [link for link in own if card.pci and link.seen.pci == card.pci]
    if on_card:
        return max(on_card, key=agreement)
    likely = [link for link in own if not link.seen.pci and agreement(link) >= 2]
    return max(likely, key=agreement, default=None)


def described(link: rtnl_read.Interface) -> str:
    """Return a description of a link that is in the way of another, for an error."""
    kind = f"a {link.seen.kind}" if link.seen.kind else "a card's own"
    if link.seen.alias:
        return f"{kind} marked {link.seen.alias!r}"
    return f"{kind} without kube-rdma's mark"


def _send(netlink: Netlink, request: NetlinkRequest, act: str = "", *, harmless: int = 0) -> None:
    """Send a request; raise the error of a refusal, which names `act` if given.

    The errno `harmless` is no error: it means that nothing is left to do.
    """
    try:
        rtnl_write.send(netlink, request)
    except Unavailable as error:
        if errors.errno_of(error) == harmless:
            return
        if act:
            raise errors.judged(act, error) from error
        raise


# Sysctls of the pod's network namespace: the file is opened inside, and used here.

# In a container /proc/sys is read-only; there the node's /proc is mounted beside it.
_ROOTS = (Path("/host/proc/sys"), Path("/proc/sys"))


class PodSysctls:
    """Access to the sysctls of a pod's network namespace.

    The folders net/ipv4/conf and net/ipv6/conf are opened once, inside of the namespace. The kernel
    looks names in them up in that namespace, whoever opens a file (proc_sys_lookup,
    fs/proc/proc_sysctl.c).
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._folders: dict[str, int] = {}
        self._root = next((root for root in _ROOTS if root.is_dir()), _ROOTS[-1])

    def close(self) -> None:
        """Close the open folders of sysctls."""
        for descriptor in self._folders.values():
            os.close(descriptor)

    def write(self, step: steps.SetSysctl) -> None:
        """Write a sysctl, such as ``net/ipv4/conf/net1/arp_ignore``; skip an optional missing one.

        Raise Refused when there is no such sysctl, when it does not take the value, or when it may
        not be written. Raise Unavailable when the namespace is gone.
        """
        try:
            with self._opened(step.path, os.O_WRONLY) as descriptor:
                os.write(descriptor, f"{step.value}\n".encode())
        except OSError as error:
            if not (step.optional and error.errno == errno.ENOENT):
                raise judged(step.path, step.value, error) from error

    def read(self, path: str) -> str | None:
        """Return the value of a sysctl, None if it cannot be read.

        Raise Refused as check_path does, and as open_inside where the namespace cannot be entered.
        """
        try:
            with self._opened(path, os.O_RDONLY) as descriptor:
                return os.read(descriptor, 4096).decode(errors="replace").strip()
        except OSError:
            return None

    def _opened(self, path: str, flags: int) -> AbstractContextManager[int]:
        """Return an open descriptor of a sysctl's file; raise OSError, or as check_path."""
        check_path(path)
        top, _, name = path.partition("/conf/")
        if top not in {"net/ipv4", "net/ipv6"}:
            return closed_after(self._inside(path, flags))
        if top not in self._folders:
            self._folders[top] = self._inside(f"{top}/conf", os.O_DIRECTORY)
        return closed_after(os.open(name, flags, dir_fd=self._folders[top]))

    def _inside(self, path: str, flags: int) -> int:
        return open_inside(self._namespace, lambda: os.open(self._root / path, flags))


def check_path(path: str) -> None:
    """Raise Refused for a path that is no network sysctl: only those belong to a namespace."""
    first, *others = path.split("/")
    if first != "net" or not others or set(others) & {"", ".", ".."}:
        raise Refused(
            f"{path} is not a network sysctl", remedy="Name one like net/ipv4/conf/net1/arp_ignore"
        )


def judged(path: str, value: str, error: OSError) -> KubeError:
    """Return the error for a sysctl that could not be written, by the errno."""
    if error.errno == errno.ENOENT:
        return Refused(f"the pod has no sysctl {path}", remedy="Name one that its kernel has")
    if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
        return Refused(
            f"the sysctl {path} may not be written ({error.strerror})",
            remedy="Mount /proc of the node where the agent can write to it",
        )
    if error.errno in {errno.EINVAL, errno.ERANGE}:
        return Refused(
            f"the sysctl {path} does not take the value {value!r}", remedy="Give one that it takes"
        )
    return Unavailable(f"the sysctl {path}: {error.strerror}")
