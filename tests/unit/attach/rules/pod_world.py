"""A world that runs Steps: the made-up kernel that contract tests hold, with one pod.

What it takes and a plan may not ask of a real one fails an assertion.
"""

from __future__ import annotations

from pathlib import Path

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.pod.errors import INFINIBAND
from kube_rdma.attach.rules.undo import looked_at
from kube_rdma.model.attach import steps
from kube_rdma.model.device import guid_of_sysfs
from kube_rdma.model.pools import ResetFunction, SetFunction
from kube_rdma.model.survey import NamespaceMode
from kube_rdma_testing.kernel.network_kernel import FakeKernel
from kube_rdma_testing.kernel.network_pod import FakePod


class World(FakeKernel):
    """A node with these cards; `pod` is the namespace of its pod."""

    def __init__(self, node, cards):
        super().__init__(shared=node.namespace_mode is not NamespaceMode.EXCLUSIVE)
        for each in node.links:
            wide = each.link_type == "infiniband"
            facts = {"hardware": INFINIBAND, "kind": "ipoib"} if wide else {}
            if each.virtual:
                of = each.virtual
                above = self.add_link(
                    of.physical.name, mac="02:00:00:00:01:00", pci=of.pci, **facts
                )
                above.index, above.functions = of.physical.index, {of.number: each.settings}
                facts |= {"physical": above, "number": of.number}
            facts |= {"index": each.index, "mtu": each.mtu, "up": each.up, "pci": each.pci}
            self.add_link(each.name, mac=each.mac, **facts)
        for one in (device for card in cards for device in card.devices):
            self.add_rdma(
                one.name, self.named(self.node, one.ports[0].netdev), soft=one.pci is None
            )
            self.rdma[-1].guid = guid_of_sysfs(one.node_guid)
            self.rdma[-1].partitions = (0xFFFF, 0x8012)
        self._made = 1000  # no later link has the index of one of these
        self.add_pod(Path("/run/netns/pod"))
        self.pod = self.space(Path("/run/netns/pod"))
        self._face = FakePod(self, self.pod, 0.0)

    def state(self):
        """What undoing restores: all but numbers, one of which is in an IPoIB interface's MAC."""
        links = sorted(
            (one.name, one.mac[-23:], one.mtu, one.up, one.pci or "", one.alias, one.space.inode)
            for one in self.links
        )
        devices = sorted(
            (one.pci or one.name, one.space.inode, one.on.name, str(one.guid)) for one in self.rdma
        )
        functions = [one.functions for one in self.links if one.functions]
        pod = (list(self.pod.routes), list(self.pod.rules), dict(self.pod.sysctls))
        return links, devices, [dict(one) for one in functions], pod

    def view(self, *plans):
        """The fresh look that attach/rules/undo compares with; a kernel heeds routers."""
        _, functions = looked_at(plans)
        usual = {f"net/ipv6/conf/{name}/accept_ra": "1" for name in self.names()}
        sysctls = tuple((usual | self.pod.sysctls).items())
        return replace(self._face.look(functions=functions), sysctls=sysctls)

    def run(self, step):
        """Run a Step that the kernel takes and that harms nobody."""
        match step:
            case steps.MakeLink():
                below = self.pod if step.inside else self.node
                assert self.named(below, step.parent.name).up, "it would have no carrier"
            case steps.AddAddress():
                assert self.link(step.name).up, "its route and its GID come when the link is up"
                path = f"net/ipv6/conf/{step.name}/disable_ipv6"
                assert step.address.version == 4 or self.pod.sysctls[path] == "0", "EACCES"
            case steps.MakeRdma():
                assert self.shared, "it would land in the node's namespace"
            case SetFunction():
                self._stays_in_its_vlan(step.place, step.wanted.vlan)
        self._face.run(step)

    def run_all(self, *plans):
        """Run every Step of plans, one plan after the other."""
        for step in (step for plan in plans for step in plan.steps):
            self.run(step)

    def undo(self, act):
        if isinstance(act, ResetFunction):
            self._stays_in_its_vlan(act.place, act.previous.vlan)
        self._face.undo(act)

    def _stays_in_its_vlan(self, place, vlan):
        """Assert that no function changes its VLAN while it is in the pod."""
        for one in self.within(self.pod):
            if one.physical and (one.physical.pci, one.number) == (place.pci, place.number):
                assert vlan in (None, one.physical.functions[one.number].vlan)

    def link(self, name):
        """The pod's link of a name, which must be there."""
        return next(one for one in self.within(self.pod) if one.name == name)

    def names(self):
        """Of the pod's links, but lo."""
        return [one.name for one in self.within(self.pod) if one.name != "lo"]
