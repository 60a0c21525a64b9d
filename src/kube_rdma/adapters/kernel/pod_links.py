"""Links, addresses, routes and rules of one pod, made and taken back over routing netlink.

Two sockets: one bound to the node's namespace, one to the pod's. steps.py calls these methods, one
for each Step; requests are rtnl_write's, looks rtnl_view's. The usual way is asked for first, and
only a refusal makes us look what stands in the way.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kube_rdma.adapters.kernel import rtnl_write
from kube_rdma.adapters.kernel.netlink import Netlink
from kube_rdma.adapters.kernel.rtnl_view import (
    Interface,
    interface_at,
    interface_named,
    interfaces,
)
from kube_rdma.adapters.kernel.rtnl_write import Request
from kube_rdma.adapters.kernel.step_errors import (
    errno_of,
    invalid_link,
    judged,
    lost,
    mtu_too_large,
    name_taken,
    name_taken_outside,
    no_link_here,
    no_parent,
    old_name_taken,
)
from kube_rdma.model.errors import KubeRdmaError, Unavailable
from kube_rdma.model.ip import InterfaceName
from kube_rdma.model.step import (
    AddAddress,
    AddRoute,
    AddRule,
    GiveBackLink,
    MakeLink,
    RemoveLink,
    RemoveRule,
    SetLink,
    TakeLink,
    VirtualKind,
)

_OURS = frozenset(kind.value for kind in VirtualKind)  # never a card's own link


@dataclass(frozen=True, slots=True)
class PodLinks:
    """`namespace` and `home` are descriptors of the pod's and the node's namespace."""

    node: Netlink
    pod: Netlink
    namespace: int
    home: int
    _indexes: dict[InterfaceName, int] = field(default_factory=dict)

    def make(self, step: MakeLink) -> None:
        """Two messages: an alias cannot be given at birth."""
        self._indexes.clear()
        try:
            _send(self.node, rtnl_write.make_link(step, self.namespace))
        except Unavailable as error:
            if errno_of(error) != errno.EEXIST:
                raise self._not_made(step, error) from error
            there = interface_named(self.pod, step.name)
            if there is None:
                raise name_taken_outside(step) from error
            if not there.ours(step.mark):
                raise name_taken(step, described(there)) from error
            if there.seen.alias:
                return
        self._do(rtnl_write.mark_link(step), f"marking {step.name}")

    def take(self, step: TakeLink) -> None:
        """Find it on either side, move and rename it in one message."""
        self._indexes.clear()
        inside = interfaces(self.pod)
        there = pick(inside, step, step.name)
        if there and there.seen.name == step.name:
            return
        for other in inside:
            if other.seen.name == step.name:
                raise name_taken(step, described(other))
        act = f"moving {step.link.name} into the pod as {step.name}"
        if there:  # the kernel moves first: it died, or was refused, before the new name
            self._do(rtnl_write.rename_link(there.seen.index, step.name), act)
            return
        here = self._on_node(step)
        if here is None:
            raise lost(step.link, step.name)
        try:
            _send(self.node, rtnl_write.take_link(step, here.seen.index, self.namespace))
        except Unavailable as error:
            raise judged(act, error) from error

    def set(self, step: SetLink) -> None:
        """MAC, MTU and up, in one message by name."""
        try:
            _send(self.pod, rtnl_write.set_link(step))
        except Unavailable as error:
            there = interface_named(self.pod, step.name)
            if there is None:
                raise no_link_here(step.name) from error
            if step.mac is None or there.seen.mac != step.mac.lower():
                raise self._not_set(step, there, error) from error
            # Many a driver takes no MAC while its link is up, not even the one that it has.
            self.set(replace(step, mac=None))

    def add_address(self, step: AddAddress) -> None:
        """The kernel takes the same address again for a change of nothing."""
        request = rtnl_write.add_address(step, self._index(step.name))
        self._do(request, f"the address {step.address}/{step.prefix} on {step.name}")

    def add_route(self, step: AddRoute) -> None:
        """In the place of another to the same destination, as the Step says."""
        request = rtnl_write.add_route(step, self._index(step.name))
        self._do(request, f"the route to {step.to} over {step.name}")

    def add_rule(self, step: AddRule) -> None:
        """EEXIST is said of just this rule (rule_exists, net/core/fib_rules.c)."""
        try:
            _send(self.pod, rtnl_write.add_rule(step))
        except Unavailable as error:
            if errno_of(error) != errno.EEXIST:
                raise judged(f"the rule for {step.source}", error) from error

    def remove_rule(self, undo: RemoveRule) -> None:
        """ENOENT: it is not there."""
        try:
            _send(self.pod, rtnl_write.remove_rule(undo))
        except Unavailable as error:
            if errno_of(error) != errno.ENOENT:
                raise judged(f"removing the rule for {undo.source}", error) from error

    def remove(self, undo: RemoveLink) -> None:
        """Only with our mark: another link of this name is another's."""
        self._indexes.clear()
        there = interface_named(self.pod, undo.name)
        if there and there.ours(undo.mark):
            try:
                _send(self.pod, rtnl_write.remove_link(there.seen.index))
            except Unavailable as error:
                if errno_of(error) != errno.ENODEV:
                    raise judged(f"removing {undo.name}", error) from error

    def give_back(self, undo: GiveBackLink) -> None:
        """Out of the pod under its old name; what is left to restore, restore_on_node does."""
        self._indexes.clear()
        there = pick(interfaces(self.pod), undo, undo.name)
        if there:
            other = interface_named(self.node, undo.link.name)
            if other:
                raise old_name_taken(undo, f"{undo.name} in the pod")
            request = rtnl_write.send_home(undo, there.seen.index, self.home)
            self._do(request, f"moving {undo.name} back to the node as {undo.link.name}")
        restore_on_node(self.node, undo)

    def _on_node(self, step: TakeLink) -> Interface | None:
        """By its index at planning, which is one small answer; else among all."""
        here = interface_at(self.node, step.link.index)
        if here and pick([here], step, step.link.name):
            return here
        return pick(interfaces(self.node), step, step.link.name)

    def _index(self, name: InterfaceName) -> int:
        if name not in self._indexes:
            found = interface_named(self.pod, name)
            if found is None:
                raise no_link_here(name)
            self._indexes[name] = found.seen.index
        return self._indexes[name]

    def _do(self, request: Request, act: str) -> None:
        try:
            _send(self.pod, request)
        except Unavailable as error:
            raise judged(act, error) from error

    def _not_made(self, step: MakeLink, error: Unavailable) -> KubeRdmaError:
        parent = interface_at(self.node, step.parent.index)
        if parent is None:
            return no_parent(step.parent)
        reason = invalid_link(step, parent.seen.mtu, parent.hardware)
        if reason and errno_of(error) in {errno.EINVAL, errno.EOPNOTSUPP}:
            return reason
        return judged(f"{step.kind} {step.name} on {step.parent.name}", error)

    def _not_set(self, step: SetLink, there: Interface, error: Unavailable) -> KubeRdmaError:
        if step.mtu and there.seen.kind in _OURS and there.seen.parent:
            parent = interface_at(self.node, there.seen.parent)
            if parent and parent.seen.mtu < step.mtu:
                return mtu_too_large(step.name, step.mtu, parent.seen.name, parent.seen.mtu)
        return judged(f"setting {step.name}", error)


def restore_on_node(node: Netlink, undo: GiveBackLink) -> None:
    """Name, MTU, MAC and state of a link that is on the node; nothing where they are right.

    Also for a pod whose namespace is gone: the kernel brought the link back under the name that it
    had there, or as devN. Raise Unavailable when it is not there (yet), Broken when its name is
    another's.
    """
    found = interfaces(node)
    here = pick(found, undo, undo.link.name, undo.name)
    if here is None:
        raise lost(undo.link, undo.name)
    now = here.seen
    if now.name != undo.link.name and any(i.seen.name == undo.link.name for i in found):
        raise old_name_taken(undo, now.name)
    act = f"restoring {undo.link.name} on the node"
    try:
        if (now.mtu, now.mac) != (undo.mtu, undo.mac) or now.name != undo.link.name:
            if now.up:  # a name cannot be changed meanwhile before Linux 6.2, a MAC of many drivers
                _send(node, rtnl_write.set_down(now.index))
            if now.name != undo.link.name:
                _send(node, rtnl_write.rename_link(now.index, undo.link.name))
            mtu = None if now.mtu == undo.mtu else undo.mtu
            mac = None if now.mac == undo.mac else undo.mac
            _send(node, rtnl_write.restore_link(now.index, mtu, mac, up=undo.up))
        elif now.up != undo.up:
            _send(node, rtnl_write.restore_link(now.index, None, None, up=undo.up))
    except Unavailable as error:
        raise judged(act, error) from error


def pick(
    found: Iterable[Interface], card: TakeLink | GiveBackLink, *names: str
) -> Interface | None:
    """The card's own link among these, None when it is not there.

    By the function that it sits on. The kernel does not tell one for every link (virtio, Linux
    before 5.14): then two of index, MAC and name have to agree, since each alone may be another's.
    """

    def agreement(link: Interface) -> int:
        macs = {link.seen.mac, link.permanent_mac}
        index = link.seen.index == card.link.index
        return index + (card.mac in macs) + (link.seen.name in names)

    own = [link for link in found if link.seen.kind not in _OURS]
    on_card = [link for link in own if card.pci and link.seen.pci == card.pci]
    if on_card:
        return max(on_card, key=agreement)
    likely = [link for link in own if not link.seen.pci and agreement(link) >= 2]
    return max(likely, key=agreement, default=None)


def described(link: Interface) -> str:
    """A link that stands in the way, in words."""
    kind = f"a {link.seen.kind}" if link.seen.kind else "a card's own"
    return f"{kind} marked {link.seen.alias!r}" if link.seen.alias else f"{kind} without our mark"


def _send(netlink: Netlink, request: Request) -> None:
    netlink.ask(request.kind, request.body, more=request.flags)
