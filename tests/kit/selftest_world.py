"""A made-up node for the hardware self-test, whose kernel can fail at any act."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.pod.errors import INFINIBAND
from kube_rdma.model.attach.attachment import HostLink, HostNetwork, LinkWays
from kube_rdma.model.attach.steps import AddRoute
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.pools import FunctionPlace
from kube_rdma.model.survey import NamespaceMode
from kube_rdma_selftest.run import SelftestDependencies
from kube_rdma_selftest.trial import SelftestScene
from kube_rdma_testing.kernel.network_kernel import FakeKernel
from kube_rdma_testing.kernel.network_vf import seen_functions

from .pod_networks import AS_MADE, WIDE_MADE

GUID = "02:00:00:00:00:00"


class World:
    """The node of these cards (tests/kit/pod_networks); `fail_at` and `fail_undo` are acts."""

    def __init__(self, *cards, exclusive=False):
        self.kernel, self.cards = FakeKernel(shared=not exclusive), cards
        self.routed, self.above = (), ()
        self.ran, self.fail_at, self.fail_undo, self.stop_at = 0, None, None, None
        self.waited, self._numbers = 0.0, count()
        for each in cards:
            self._put(each)

    def _put(self, card):
        (netdev,) = card.function.netdevs
        bus = card.pci[5:7]
        wide = netdev.link_type == "infiniband"
        mac = f"02:00:00:00:00:{bus}"
        facts = {}
        if card.position.physical_function:
            pci = card.position.physical_function
            above = self.kernel.add_link(f"pf{bus}", mac=f"02:00:00:00:01:{bus}", pci=pci, up=True)
            above.functions = {0: AS_MADE}
            if wide:
                made = replace(WIDE_MADE, node_guid=f"{GUID}:{bus}:01")
                above.functions = {0: replace(made, port_guid=made.node_guid)}
                above.hardware, above.kind = INFINIBAND, "ipoib"
            facts = {"physical": above, "number": 0}
        if wide:
            mac = f"00:00:00:01:fe:80:00:00:00:00:00:00:{GUID}:{bus}:01"
            facts |= {"hardware": INFINIBAND, "kind": "ipoib"}
        on = self.kernel.add_link(netdev.name, mac=mac, pci=card.pci, mtu=2044, up=True, **facts)
        for device in card.devices:
            self.kernel.add_rdma(device.name, on, soft=device.pci is None)
            self.kernel.rdma[-1].guid = f"{GUID}:{bus}:01" if wide else None

    def look(self):
        kernel = self.kernel
        links = tuple(self._link(one) for one in kernel.within(kernel.node))
        places = [link.virtual for link in links if link.virtual]
        mode = NamespaceMode.SHARED if kernel.shared else NamespaceMode.EXCLUSIVE
        return SelftestScene(
            cards=tuple(map(self._card, self.cards)),
            network=HostNetwork(links, mode),
            functions=seen_functions(kernel, places),
            routed=self.routed,
            above=self.above,
            rdma=tuple(one.name for one in kernel.rdma),
        )

    def _link(self, one):
        physical = one.physical
        place = physical and FunctionPlace(
            PlannedHostLink(physical.index, physical.name), physical.pci, 0
        )
        return HostLink(
            one.index,
            one.name,
            one.mtu,
            one.mac,
            one.up,
            one.pci,
            "infiniband" if one.hardware == INFINIBAND else "ether",
            addresses=tuple(one.addresses),
            virtual=place,
            ways=self._ways(one),
        )

    def _ways(self, one):
        """The node's routes over a link, and the rules for its addresses."""
        node, own = self.kernel.node, {address for address, _ in one.addresses}
        routes = [AddRoute(r.name, r.to, r.via, None, r.table) for r in node.routes]
        rules = [rule for rule in node.rules if rule.source in own]
        over = tuple(route for route in routes if route.name == one.name)
        return LinkWays(one.name, over, tuple(rules)) if over or rules else None

    def _card(self, card):
        by_name = {device.name: device for device in card.devices}
        found = []
        for one in self.kernel.rdma:
            known = by_name.get(one.name) or next(
                (each for each in card.devices if one.pci and each.pci == one.pci), None
            )
            if known is None:
                continue
            here = one.on.name if one.on.space is self.kernel.node else None
            port = replace(known.ports[0], netdev=here)
            guid = one.guid and one.guid.replace(":", "")
            found.append(replace(known, name=one.name, ports=(port,), node_guid=guid))
        return replace(card, devices=tuple(found))

    @contextmanager
    def namespace(self):
        path = Path(f"/run/netns/selftest-{next(self._numbers)}")
        self.kernel.add_pod(path)
        try:
            yield path
        finally:
            self.kernel.end(path)

    @contextmanager
    def open_pod(self, namespace):
        with self.kernel.open_pod(namespace) as pod:
            yield Failing(self, pod)

    def dependencies(self):
        return SelftestDependencies(
            self.look,
            self.namespace,
            self.open_pod,
            stopped=lambda: self.stop_at is not None and self.ran >= self.stop_at,
            wait=self._wait,
            clock=lambda: self.waited,
        )

    def _wait(self, seconds):
        self.waited += seconds

    def state(self):
        """Everything on the node, but indexes and the queue pairs of interfaces made anew."""
        kernel = self.kernel
        links = [
            (one.name, one.mtu, one.mac[-23:], one.up, one.addresses[:], dict(one.functions))
            for one in kernel.within(kernel.node)
        ]
        devices = [(one.pci or one.name, one.on.name, one.guid, one.space) for one in kernel.rdma]
        ways = sorted(map(str, (*kernel.node.routes, *kernel.node.rules)))
        return sorted(links, key=str), sorted(devices, key=str), ways


class Failing:
    """A pod whose Step number `fail_at` fails, and every act of type `fail_undo`."""

    def __init__(self, world, pod):
        self._world, self._pod = world, pod
        self.look = pod.look

    def run(self, step):
        self._world.ran += 1
        if self._world.ran == self._world.fail_at:
            raise Unavailable("the kernel refuses: Device or resource busy")
        self._pod.run(step)

    def undo(self, act):
        if self._world.fail_undo is type(act):
            raise Unavailable("the kernel refuses: Device or resource busy")
        self._pod.undo(act)
