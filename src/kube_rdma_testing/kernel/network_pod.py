"""A fake PodNetwork, whose Steps change the lists of network.py.

Its errors come from kernel/pod/errors.py, as those of the real one.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.rtnl_write import GROUP, interim_name, mac_bytes, make_link
from kube_rdma.adapters.kernel.pod import errors
from kube_rdma.adapters.kernel.pod import links as sysctl
from kube_rdma.adapters.kernel.pod.links import described, pick
from kube_rdma.adapters.kernel.pod.steps import seen_device
from kube_rdma.model.attach import steps
from kube_rdma.model.attach.attachment import PodView, SeenLink
from kube_rdma.model.attach.steps import AddRule
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.pools import FunctionPlace, RebindFunction, ResetFunction, SetFunction
from kube_rdma_testing.kernel import network_rdma
from kube_rdma_testing.kernel.network import MOST, FakeLink, FakeNetwork, refusal
from kube_rdma_testing.kernel.network import FakeSpace as Space
from kube_rdma_testing.kernel.network_vf import (
    allowed_mac,
    reset_function,
    seen_functions,
    set_function,
)

_SYSCTL = re.compile(r"net/ipv[46]/conf/([^/]+)/[a-z0-9_]+")
_ALWAYS = frozenset({"all", "default"})


class FakePod:
    """A fake of PodNetwork, the network of one pod; `space` is None if its namespace is gone."""

    def __init__(self, network: FakeNetwork, space: Space | None, patience: float) -> None:
        self._net = network
        self._maybe = space
        self._patience = patience
        self._run: dict[type, Callable[[Any], None]] = {
            steps.MakeLink: self._make,
            steps.TakeLink: self._take,
            SetFunction: lambda step: set_function(network, step),
            RebindFunction: lambda step: network_rdma.rebind(network, step, self._space),
            steps.SetLink: self._set,
            steps.Probe: self._probe,
            steps.AddAddress: self._add_address,
            steps.AddRoute: self._add_route,
            steps.AddRule: self._add_rule,
            steps.SetSysctl: self._set_sysctl,
            steps.MakeRdma: lambda step: network_rdma.make(network, step.name, self._link(step.on)),
            steps.MoveRdma: lambda step: network_rdma.move(network, step, self._space),
            steps.AwaitPartition: lambda step: network_rdma.await_partition(
                network, step, self._space
            ),
            steps.AwaitGid: self._await_gid,
            steps.Announce: self._announce,
        }
        self._undo: dict[type, Callable[[Any], None]] = {
            steps.RemoveLink: self._remove,
            steps.RemoveLinks: self._remove_all,
            steps.RemoveRule: self._remove_rule,
            steps.RemoveRdma: lambda undo: network_rdma.remove(network, undo, self._space),
            steps.GiveBackRdma: lambda undo: network_rdma.give_back(network, undo, self._space),
        }

    @property
    def inode(self) -> int | None:
        """Return the inode of the namespace, None when it is gone."""
        return self._maybe.inode if self._maybe else None

    def run(self, step: steps.Step) -> None:
        """Run a Step, as PodNetwork.run does."""
        if self._maybe is None:
            raise errors.namespace_gone()
        self._run[type(step)](step)

    def undo(self, undo: steps.Undo) -> None:
        """Undo a Step, as PodNetwork.undo does."""
        if isinstance(undo, steps.GiveBackLink):
            self._give_back(undo)
        elif isinstance(undo, ResetFunction):
            reset_function(self._net, undo)
        elif isinstance(undo, steps.RestoreRdma):
            network_rdma.restore(self._net, undo)
        elif isinstance(undo, RebindFunction):
            network_rdma.rebind(self._net, undo)
        elif self._maybe is not None:
            self._undo[type(undo)](undo)
        elif isinstance(undo, steps.RemoveLink | steps.RemoveLinks):
            network_rdma.remove_returned(self._net, undo)

    def links(self) -> tuple[SeenLink, ...]:
        """Return the links of the namespace; raise Unavailable if it is gone."""
        if self._maybe is None:
            raise errors.namespace_gone()
        return tuple(link.interface().seen for link in self._net.within(self._space))

    def look(self, sysctls: Sequence[str] = (), functions: Sequence[FunctionPlace] = ()) -> PodView:
        """Return the links, routes, rules and RDMA devices of the pod, as PodNetwork.look does."""
        links = self.links()
        values = ((path, self._sysctl(path)) for path in sysctls)
        return PodView(
            links=links,
            routes=tuple(self._space.routes),
            rules=tuple(self._space.rules),
            rdma=tuple(
                replace(
                    seen_device(
                        device.name,
                        device.on.name if device.on.space is self._space else None,
                        device.pci,
                        tuple((on, gid) for on, gid in self._net.gids(device) if gid),
                        links,
                    ),
                    guid=device.guid,
                )
                for device in self._net.rdma
                if self._net.shared or device.space is self._space
            ),
            sysctls=tuple((path, value) for path, value in values if value is not None),
            functions=seen_functions(self._net, functions),
        )

    @property
    def _space(self) -> Space:
        assert self._maybe is not None
        return self._maybe

    def _link(self, name: InterfaceName) -> FakeLink:
        link = self._net.named(self._space, name)
        if link is None:
            raise errors.no_link_here(name)
        return link

    def _make(self, step: steps.MakeLink) -> None:
        make_link(step, 0)  # raises for what no message can carry
        link = self._net.named(self._space, step.name)
        if link is None:
            link = self._born(step) if self._free(step) else self._born_apart(step)
        elif not link.interface().ours(step.mark):
            raise errors.name_taken(step, described(link.interface()))
        if not link.alias:
            link.alias = step.mark
            self._net.message()

    def _free(self, step: steps.MakeLink) -> bool:
        """Return whether a link can get its name; old kernels need it free on the node too."""
        return not self._net.old or self._net.named(self._net.node, step.name) is None

    def _born_apart(self, step: steps.MakeLink) -> FakeLink:
        interim = replace(step, name=interim_name(step.mark))
        link = self._net.named(self._space, interim.name) or self._born(interim)
        link.name = step.name
        self._net.message()
        return link

    def _born(self, step: steps.MakeLink) -> FakeLink:
        if step.inside:
            parent = self._net.named(self._space, step.parent.name)
        else:
            node = self._net.within(self._net.node)
            parent = next((link for link in node if link.index == step.parent.index), None)
        if parent is None:
            raise errors.no_parent(step.parent)
        wrong = errors.invalid_link(step, parent.mtu, parent.hardware)
        if wrong:
            raise wrong
        index = self._net.next_index()
        mac = step.mac or f"06:00:00:00:{index >> 8:02x}:{index & 255:02x}"
        if step.kind is steps.VirtualKind.MACVLAN:
            _check_mac(mac, f"{step.kind} {step.name} on {step.parent.name}")
        else:
            mac = parent.mac  # an ipvlan is told apart by its addresses, IPoIB by its queue pair
        link = FakeLink(step.name, index, mac, self._space, step.mtu or parent.mtu)
        link.kind, link.parent, link.group = step.kind.value, parent, GROUP
        link.hardware = parent.hardware
        self._net.links.append(link)
        self._net.message()
        return link

    def _take(self, step: steps.TakeLink) -> None:
        inside = self._pick(step, self._space, step.name)
        if inside and inside.name == step.name:
            return
        other = self._net.named(self._space, step.name)
        if other and other is not inside:
            raise errors.name_taken(step, described(other.interface()))
        if inside:
            self._free_name(inside, step.name)
            self._net.rename(inside, step.name)
        else:
            if step.active and step.pci:
                network_rdma.await_port(self._net, step.pci, self._space)
            here = self._pick(step, self._net.node, step.link.name)
            if here is None:
                raise errors.lost(step.link, step.name)
            self._free_name(here, step.name)
            self._net.move(here, self._space, step.name)
        self._net.message()

    def _set(self, step: steps.SetLink) -> None:
        link = self._link(step.name)
        if step.mac is not None:
            _check_mac(step.mac, f"setting {step.name}", link)
        if step.mtu is not None:
            if link.parent and link.parent.mtu < step.mtu:
                raise errors.mtu_too_large(step.name, step.mtu, link.parent.name, link.parent.mtu)
            if step.mtu > MOST:
                raise errors.judged(f"setting {step.name}", refusal(errno.EINVAL))
        link.mac, link.mtu, link.up = step.mac or link.mac, step.mtu or link.mtu, True
        self._net.message()

    def _probe(self, step: steps.Probe) -> None:
        if not self._link(step.name).up:
            raise errors.no_carrier(step, self._patience)
        if mac := self._net.neighbours.get(step.address):
            raise errors.address_in_use(step, mac)

    def _add_address(self, step: steps.AddAddress) -> None:
        link = self._link(step.name)
        if (step.address, step.prefix) not in link.addresses:
            link.addresses.append((step.address, step.prefix))
            subnet = ip_network((step.address, step.prefix), strict=False)
            if link.up and step.prefix < step.address.max_prefixlen:
                self._space.routes.append(steps.AddRoute(step.name, subnet))
        self._net.message()

    def _add_route(self, step: steps.AddRoute) -> None:
        link = self._link(step.name)
        act = f"the route to {step.to} over {step.name}"
        if not link.up:
            raise errors.judged(act, refusal(errno.ENETDOWN))
        near = (ip_network((address, n), strict=False) for address, n in link.addresses)
        if step.via and not step.onlink and not any(step.via in subnet for subnet in near):
            raise errors.judged(act, refusal(errno.ENETUNREACH))
        place = (step.to, step.table)
        others = [route for route in self._space.routes if (route.to, route.table) != place]
        self._space.routes = [*others, step]
        self._net.message()

    def _add_rule(self, step: steps.AddRule) -> None:
        if step not in self._space.rules:
            self._space.rules.append(step)
        self._net.message()

    def _remove(self, undo: steps.RemoveLink) -> None:
        for name in (undo.name, interim_name(undo.mark)):
            link = self._net.named(self._space, name)
            if link and link.interface().ours(undo.mark):
                self._net.remove(link)
                self._net.message()

    def _remove_all(self, undo: steps.RemoveLinks) -> None:
        wanted = {pod_link.name: pod_link.mark for pod_link in undo.links}
        wanted |= {interim_name(pod_link.mark): pod_link.mark for pod_link in undo.links}
        grouped = [link for link in self._net.within(self._space) if link.group == GROUP]
        if any(
            seen.seen.name not in wanted or not seen.ours(wanted[seen.seen.name])
            for seen in (link.interface() for link in grouped)
        ):
            for pod_link in undo.links:
                self._remove(pod_link)
            return
        for link in grouped:
            self._net.remove(link)
        if grouped:
            self._net.message()

    def _remove_rule(self, undo: steps.RemoveRule) -> None:
        gone = AddRule(undo.source, undo.table, undo.priority)
        self._space.rules = [rule for rule in self._space.rules if rule != gone]
        self._net.message()

    def _set_sysctl(self, step: steps.SetSysctl) -> None:
        sysctl.check_path(step.path)
        if step.optional and self._sysctl(step.path) is None:
            return
        if self._sysctl(step.path) is None:
            raise sysctl.judged(step.path, step.value, OSError(errno.ENOENT, ""))
        if not step.value.lstrip("-").isdecimal():
            raise sysctl.judged(step.path, step.value, OSError(errno.EINVAL, ""))
        self._space.sysctls[step.path] = step.value
        self._net.message()

    def _sysctl(self, path: str) -> str | None:
        match = _SYSCTL.fullmatch(path)
        if not match:
            return None
        exists = match[1] in _ALWAYS or self._net.named(self._space, match[1])
        return self._space.sysctls.get(path, "0") if exists else None

    def _await_gid(self, step: steps.AwaitGid) -> None:
        device = network_rdma.named(self._net, step.device)
        if device is None:
            raise errors.no_device(step.device)
        listed = self._net.gids(device)
        if (step.on, step.address) in listed:
            return
        if len(listed) == device.size:
            raise errors.table_full(step.device, step.address, len(listed), device.size)
        raise errors.no_gid(step.device, step.address, step.on, self._patience)

    def _announce(self, step: steps.Announce) -> None:
        link = self._net.named(self._space, step.name)
        if link and link.up and link.hardware == errors.ETHERNET:
            self._net.announced.append((link.name, step.address))

    def _give_back(self, undo: steps.GiveBackLink) -> None:
        other = self._net.named(self._net.node, undo.link.name)
        in_pod = self._pick(undo, self._maybe, undo.name) if self._maybe else None
        if in_pod:
            if other:
                raise errors.old_name_taken(undo, f"{undo.name} in the pod")
            self._free_name(in_pod, undo.link.name)
            self._net.move(in_pod, self._net.node, undo.link.name)
            self._net.message()
        here = self._pick(undo, self._net.node, undo.link.name, undo.name)
        if here is None:
            raise errors.lost(undo.link, undo.name, for_good=undo.pci in self._net.unplugged)
        taken = other is not None and other is not here
        self._restore(here, undo, here.name if taken else undo.link.name)
        for address in undo.addresses:
            here.addresses = [*dict.fromkeys((*here.addresses, address))]
            self._net.message()
        self._restore_ways(here, undo)
        if taken:
            raise errors.old_name_taken(undo, here.name)

    def _restore_ways(self, here: FakeLink, undo: steps.GiveBackLink) -> None:
        node = self._net.node
        for route in undo.routes if undo.up else ():
            way = replace(route, name=InterfaceName(here.name))
            node.routes = [*(one for one in node.routes if one != way), way]
            self._net.message()
        for rule in undo.rules:
            node.rules = [*(one for one in node.rules if one != rule), rule]
            self._net.message()

    def _free_name(self, link: FakeLink, name: str) -> None:
        if name in link.alternative_names:
            link.alternative_names.remove(name)
            self._net.message()

    def _restore(self, here: FakeLink, undo: steps.GiveBackLink, name: str) -> None:
        """Restore a link on the node with the messages of restore_on_node, in its order."""
        mac = allowed_mac(here, undo.mac)
        if (here.name, here.mtu, here.mac) != (name, undo.mtu, mac):
            if here.up:
                here.up = False
                self._net.message()
            if here.name != name:
                self._free_name(here, name)
                self._net.rename(here, name)
                self._net.message()
            here.mtu, here.mac, here.up = undo.mtu, mac, undo.up
            self._net.message()
        elif here.up != undo.up:
            here.up = undo.up
            self._net.message()

    def _pick(
        self, card: steps.TakeLink | steps.GiveBackLink, space: Space, *names: str
    ) -> FakeLink | None:
        links = {link.index: link for link in self._net.within(space)}
        picked = pick([link.interface() for link in links.values()], card, *names)
        return links[picked.seen.index] if picked else None


def _check_mac(mac: str, act: str, link: FakeLink | None = None) -> None:
    """Raise KubeError unless a MAC is unicast (is_valid_ether_addr) and the driver allows it."""
    first = mac_bytes(mac)[0]
    if first & 1 or not any(mac_bytes(mac)) or (link and allowed_mac(link, mac) != mac.lower()):
        raise errors.judged(act, refusal(errno.EADDRNOTAVAIL))
