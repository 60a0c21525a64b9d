"""A world that runs Steps: two namespaces, the node's and the pod's, and RDMA devices.

Steps and Undos change it as the kernel does; what the kernel refuses fails an assertion. Links are
known by their index, which stays when they move, as in most cases on a real kernel.
"""

from __future__ import annotations

from ipaddress import ip_network

from kube_base.frozen import replace
from kube_rdma.model.attach import steps
from kube_rdma.model.attach.attachment import PodView, SeenLink, SeenRdma
from kube_rdma.model.device import guid_of_sysfs
from kube_rdma.model.pools import RebindFunction, ResetFunction, SetFunction
from kube_rdma.model.survey import NamespaceMode

INFINIBAND_MAC = 59  # characters of a MAC of 20 octets
NO_MAC = "00:00:00:00:00:00"


class World:
    """`host` and `pod` are links by index, `rdma` says where a device is and on which link."""

    def __init__(self, node, cards):
        self.exclusive = node.namespace_mode is NamespaceMode.EXCLUSIVE
        self.host = {}
        self.pod, self.routes, self.rules, self.sysctls = {}, set(), set(), {}
        for each in node.links:
            facts = (each.name, each.index, each.mtu, each.mac, each.up)
            kind = "ipoib" if each.link_type == "infiniband" else ""
            self.host[each.index] = SeenLink(*facts, kind, pci=each.pci)
        self.guids = {
            one.name: guid_of_sysfs(one.node_guid) for each in cards for one in each.devices
        }
        self.pci = {one.name: one.pci for each in cards for one in each.devices}
        by_name = {each.name: each.index for each in node.links}
        self.rdma = {
            one.name: ("host", by_name[one.ports[0].netdev])
            for each in cards
            for one in each.devices
        }
        self.virtual = {each.pci: each.virtual for each in node.links if each.virtual}
        self.functions = {each.virtual: each.settings for each in node.links if each.virtual}
        self.fresh = 1000

    def state(self):
        """What undoing restores: everything but numbers."""
        links = [
            sorted(map(str, (replace(one, index=0, parent=None) for one in there.values())))
            for there in (self.host, self.pod)
        ]
        names = {index: one.name for index, one in (self.host | self.pod).items()}
        devices = sorted(
            (self.pci.get(name) or name, there, names[on], str(self.guids.get(name)))
            for name, (there, on) in self.rdma.items()
        )
        functions = dict(self.functions)
        return links, set(self.routes), set(self.rules), dict(self.sysctls), devices, functions

    def _usual(self):
        """What the kernel gives each interface that plans ask about."""
        return {f"net/ipv6/conf/{one.name}/accept_ra": "1" for one in self.pod.values()}

    def view(self):
        """The fresh look that attach/rules/undo compares with."""
        devices = []
        for name, (there, on) in self.rdma.items():
            if there == "pod" or not self.exclusive:
                netdev = self.pod[on].name if on in self.pod else None
                gids = tuple(
                    (each.name, address)
                    for each in self.pod.values()
                    for address, _ in each.addresses
                    if on in (each.index, each.parent)
                )
                seen = SeenRdma(name, netdev, self.pci.get(name), gids, self.guids.get(name))
                devices.append(seen)
        return PodView(
            tuple(self.pod.values()),
            tuple(self.routes),
            tuple(self.rules),
            tuple(devices),
            tuple((self._usual() | self.sysctls).items()),
            tuple(self.functions.items()),
        )

    def do(self, act):
        """Run a Step, or take one back."""
        ACTS[type(act)](self, act)

    def link(self, name):
        """The pod's link of a name, which must be there."""
        return next(one for one in self.pod.values() if one.name == name)

    def change(self, name, **facts):
        """Change a link of the pod."""
        found = self.link(name)
        self.pod[found.index] = replace(found, **facts)

    def allows(self, pci, mac):
        """Whether a link may have a MAC: a virtual function's only the administrative one."""
        now = self.functions.get(self.virtual.get(pci))
        return now is None or now.trust or now.mac in (NO_MAC, mac)

    def names(self):
        """Of the pod's links."""
        return [one.name for one in self.pod.values()]

    def device(self, name, pci):
        """The name that an RDMA device has now."""
        return next(one for one in self.rdma if (self.pci.get(one) == pci if pci else one == name))

    def number(self):
        """An index that nobody has."""
        self.fresh += 1
        return self.fresh

    def leave(self, index):
        """A link goes from the pod, with all that the kernel drops with it."""
        name = self.pod.pop(index).name
        self.routes = {route for route in self.routes if route.name != name}
        self.sysctls = {p: v for p, v in self.sysctls.items() if p.split("/")[3] != name}


def make_link(world, step):
    if step.name in world.names():
        assert world.link(step.name).alias == step.mark, "EEXIST"
        return
    parent = world.link(step.parent.name) if step.inside else world.host[step.parent.index]
    assert parent.up, "a link on one that is down has no carrier"
    assert step.mtu is None or step.mtu <= parent.mtu, "EINVAL"
    wide = len(parent.mac) == INFINIBAND_MAC
    assert wide is (step.kind == "ipoib"), "EINVAL"
    assert step.mac is None or step.kind == "macvlan", "EOPNOTSUPP"
    index = world.number()
    facts = (step.name, index, step.mtu or parent.mtu, step.mac or f"02:{index}", False)
    world.pod[index] = SeenLink(*facts, str(step.kind), parent.index, step.mark)


def take_link(world, step):
    if step.name in world.names():
        return
    found = next(one for one in world.host.values() if one.pci == step.pci)
    del world.host[found.index]
    world.pod[found.index] = replace(found, name=step.name, up=False)
    for name in [name for name, (_, on) in world.rdma.items() if on == found.index]:
        if world.pci.get(name) is None:
            del world.rdma[name]  # rxe goes with NETDEV_UNREGISTER


def set_function(world, step):
    settings = step.wanted if isinstance(step, SetFunction) else step.previous
    said = {name: getattr(settings, name) for name in settings.__struct_fields__}
    now = world.functions[step.place]
    then = replace(now, **{name: value for name, value in said.items() if value is not None})
    inside = any(world.virtual.get(one.pci) == step.place for one in world.pod.values())
    assert then.vlan == now.vlan or not inside, "the pod is in another VLAN for a moment"
    world.functions[step.place] = then


def rebind(world, act):
    name = world.device("", act.pci)
    if world.guids[name] == act.guid:
        return
    _, on = world.rdma.pop(name)
    found, index = (world.host | world.pod)[on], world.number()
    for one in [each.index for each in world.pod.values() if on in (each.index, each.parent)]:
        world.leave(one)
    world.host.pop(on, None)
    facts = {"name": f"ib{index}", "index": index, "up": False, "addresses": ()}
    world.host[index] = replace(found, **facts)
    new = f"mlx5_{index}"
    world.rdma[new], world.pci[new] = ("host", index), act.pci
    world.guids[new] = world.functions[world.virtual[act.pci]].node_guid


def await_partition(world, step):
    assert world.device("", step.pci) in world.rdma


def set_link(world, step):
    found = world.link(step.name)
    assert step.mac in (None, found.mac) or world.allows(found.pci, step.mac), "EADDRNOTAVAIL"
    world.change(step.name, up=True, mtu=step.mtu or found.mtu, mac=step.mac or found.mac)


def add_address(world, step):
    found = world.link(step.name)
    assert found.up, "its route and its GID come when the link is up"
    if step.address.version == 6:
        assert world.sysctls[f"net/ipv6/conf/{step.name}/disable_ipv6"] == "0", "EACCES"
    addresses = dict.fromkeys((*found.addresses, (step.address, step.prefix)))
    world.change(step.name, addresses=tuple(addresses))


def add_route(world, step):
    found = world.link(step.name)
    assert found.up, "ENETDOWN"
    if step.via is not None and not step.onlink:
        subnets = [ip_network(one, strict=False) for one in found.addresses]
        assert any(step.via in one for one in subnets), "EHOSTUNREACH"
    key = (step.to, step.table)
    world.routes = {one for one in world.routes if (one.to, one.table) != key}
    world.routes.add(step)


def set_sysctl(world, step):
    assert step.path.split("/")[3] in world.names(), "ENOENT"
    world.sysctls[step.path] = step.value


def make_rdma(world, step):
    assert not world.exclusive, "it would land in the node's namespace"
    assert len(step.name) <= 63
    world.rdma[step.name] = ("pod", world.link(step.on).index)


def move_rdma(world, step):
    assert world.exclusive, "EOPNOTSUPP"
    name = world.device(step.device, step.pci)
    there, on = world.rdma[name]
    if there == "pod":
        return
    if len((world.host | world.pod)[on].mac) == INFINIBAND_MAC:
        # Its clients are removed and added again, so the IPoIB interface is made anew.
        assert on in world.host, "the pod would lose its interface"
        found, on = world.host.pop(on), world.number()
        world.host[on] = replace(found, name="ib0", index=on, up=False)
    world.rdma[name] = ("pod", on)


def await_gid(world, step):
    (device,) = [one for one in world.view().rdma if one.name == step.device]
    assert (step.on, step.address) in device.gids


def remove_link(world, undo):
    for found in [
        one for one in world.pod.values() if (one.name, one.alias) == (undo.name, undo.mark)
    ]:
        world.leave(found.index)
        world.rdma = {n: v for n, v in world.rdma.items() if v != ("pod", found.index)}


def give_back_link(world, undo):
    found = next(one for one in (world.host | world.pod).values() if one.pci == undo.pci)
    if found.index in world.pod:
        world.leave(found.index)
    assert undo.mac == found.mac or world.allows(found.pci, undo.mac), "EADDRNOTAVAIL"
    facts = (undo.link.name, found.index, undo.mtu, undo.mac, undo.up, found.kind)
    world.host[found.index] = SeenLink(*facts, pci=found.pci)


def restore_rdma(world, undo):
    if undo.name not in world.rdma:
        index = next(one.index for one in world.host.values() if one.name == undo.link.name)
        world.rdma[undo.name] = ("host", index)


def give_back_rdma(world, undo):
    name = world.device(undo.device, undo.pci)
    there, on = world.rdma[name]
    if there == "pod" and len((world.host | world.pod)[on].mac) == INFINIBAND_MAC:
        found, new = (world.host | world.pod)[on], world.number()
        if on in world.pod:
            world.leave(on)
        else:
            del world.host[on]
        world.host[new] = replace(found, name="ib1", index=new, up=False, addresses=())
        on = new
    world.rdma[name] = ("host", on)


def nothing(world, act):
    """It leaves no trace."""


ACTS = {
    steps.MakeLink: make_link,
    steps.TakeLink: take_link,
    SetFunction: set_function,
    RebindFunction: rebind,
    steps.AwaitPartition: await_partition,
    steps.SetLink: set_link,
    steps.Probe: nothing,
    steps.AddAddress: add_address,
    steps.AddRoute: add_route,
    steps.AddRule: lambda w, step: w.rules.add(step),
    steps.SetSysctl: set_sysctl,
    steps.MakeRdma: make_rdma,
    steps.MoveRdma: move_rdma,
    steps.AwaitGid: await_gid,
    steps.Announce: nothing,
    steps.RemoveLink: remove_link,
    steps.GiveBackLink: give_back_link,
    ResetFunction: set_function,
    steps.RestoreRdma: restore_rdma,
    steps.RemoveRule: lambda w, undo: w.rules.discard(
        steps.AddRule(undo.source, undo.table, undo.priority)
    ),
    steps.RemoveRdma: lambda w, undo: w.rdma.pop(undo.name, None),
    steps.GiveBackRdma: give_back_rdma,
}
