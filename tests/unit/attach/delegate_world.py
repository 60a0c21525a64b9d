"""A node beside a meta-plugin, which calls for one interface after the other as Multus does."""

import json

from kube_rdma.adapters.cni.protocol import decode
from kube_rdma.attach.documents import cni_conf, network_status
from kube_rdma.attach.rules.conflist import ENTRY
from kube_rdma.model.attach.cni import Wiring
from tests.unit.attach.network_world import RANGE, Addresses, Late, Node, World, container

NETWORK = {
    "cniVersion": "1.0.0",
    "name": "rail",
    "type": "kube-rdma",
    "ipam": {"type": "whereabouts", "range": RANGE},
}
PREVIOUS = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}]}


class DelegateNode(Node):
    """`brought` are the pools that documents brought, `own` is our annotation."""

    brought = ()
    own = ""

    async def bring(self, ipam):
        self._working()
        self.brought = (*self.brought, *([ipam.pool.name] if ipam.pool else []))

    async def written(self, namespace, name):
        self._working()
        found = self.networks.get(f"{namespace}/{name}")
        return (found[1].encode(), found[0]) if found else None

    async def configured_text(self, name):
        self._working()
        return cni_conf.text_of(self.confs, name)

    async def tell_own(self, pod, found, others):
        self._working()
        self.life.alive()
        self.own = network_status.own_status(found, self.own, others)
        self.life.act("own status told")


class WrittenOnce(Late):
    """A file of a sandbox is never rewritten, as adapters/runtime/cdi keeps it."""

    async def attach(self, sandbox, edits, annotations, holdings):
        assert self._bound.get(sandbox.container, edits) == edits
        await super().attach(sandbox, edits, annotations, holdings)


class OfInterfaces(Addresses):
    async def add(self, request):
        self._life.alive()
        granted = await self._giver.add(request)
        for one in request.nics:
            given = {str(e.address) for e in granted.allocations if e.interface == one.interface}
            self.held[request.container, one.interface] = given
        self._life.act("addresses taken")
        return granted

    async def delete(self, container, interface=None):
        self._life.alive()
        await self._giver.delete(container, interface)
        for key in list(self.held):
            if key[0] == container and interface in (None, key[1]):
                del self.held[key]
        self._life.act("addresses given back")

    async def collect(self, living, since):
        await self._giver.collect(living, since)
        for key in [one for one in self.held if one[0] not in living]:
            del self.held[key]


class DelegateWorld(World):
    """Calls come as bytes, through the decoder; `wiring` is what the host's configuration says."""

    def __init__(self, *args, **facts):
        super().__init__(*args, **facts)
        self.wiring = Wiring.DELEGATE

    @property
    def wiring(self):
        return self.context.wiring

    @wiring.setter
    def wiring(self, wiring):
        self.context.wiring = wiring

    def start(self, at=None, error=None):
        if not isinstance(self.node, DelegateNode):
            pools, old = self.node.pools, self.node
            self.node = DelegateNode(old.kernel, old.cards, old.shares, old.networks)
            self.node.pools = pools
        super().start(at, error)

    def addresses(self, life):
        return OfInterfaces(self.giver, self.held, life)

    def late(self, life):
        return WrittenOnce(self.bound, life)

    async def meta(self, verb, number, interface="net1", pod="train-0", cni_args="", **config):
        """A call for one interface of a sandbox, with changes to the network's configuration.

        `cni_args` are in CNI_ARGS besides.
        """
        path = self._files[number]
        variables = {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": container(number),
            "CNI_IFNAME": interface,
            "CNI_NETNS": str(path),
            "CNI_ARGS": "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_UID=uid-1"
            + (f";K8S_POD_NAME={pod}" if pod else "")
            + cni_args,
        }
        environment = "".join(f"{key}={value}\0" for key, value in variables.items()).encode()
        text = json.dumps({**NETWORK, **config}).encode()
        call = decode(environment, text, number if path.exists() else None)
        return await self.calls.answer(call)

    async def chain(self, verb, number, **entry):
        """A call of the runtime, behind the cluster's own plugin."""
        config = {"ipam": None, "name": "cluster", "prevResult": PREVIOUS, **ENTRY, **entry}
        return await self.meta(verb, number, "eth0", **config)
