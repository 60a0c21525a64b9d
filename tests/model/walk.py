"""The walk: a seed, a world, and at each step one thing that may happen; `calm` asks for the rest.

Most steps are one effect of one program. The others are people, hardware and time: pods come and
go, agents crash, nodes lose power, contact or their disk, watches lag, the store goes back to an
earlier hour. Every so often the world calms down, and then nothing may be lost: pods get every
address of a pool, to the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from random import Random

from kube_rdma.ipam.rules.node_state import lost
from kube_rdma.ipam.rules.subpools import Subpool, mask, part, slices_from
from kube_rdma.model import ipam

from .machine import Machine
from .truth import Breach
from .world import TIMING, Flaw, Past, World

REST = 5.0
NODES = [ipam.NodeName(f"node-{n}") for n in range(5)]
OWNERS = [ipam.Owner(f"default/sts-{n}/net1") for n in range(3)]


def _range(subnet: str, first: str = "", last: str = "", gateway: str = "") -> ipam.IPRange:
    end = [ip_address(word) if word else None for word in (first, last, gateway)]
    return ipam.IPRange(ip_network(subnet), end[0], end[1], end[2])


def _pool(name: str, network: str, block_size: int, *ranges: ipam.IPRange, **more) -> ipam.IPPool:
    return ipam.IPPool(
        ipam.PoolName(name),
        ranges,
        ipam.NetworkName(network),
        block_size=block_size,
        cooldown=REST,
        **more,
    )


POOLS = (
    # Two that overlap in one network, a twin in another, and a dual stack one.
    _pool("wide", "a", 4, _range("10.0.0.0/24", "10.0.0.58", "10.0.0.80", "10.0.0.60")),
    _pool("part", "a", 2, _range("10.0.0.0/24", "10.0.0.62", "10.0.0.69")),
    _pool(
        "twin",
        "b",
        3,
        _range("10.0.0.0/24", "10.0.0.58", "10.0.0.64"),
        _range("10.0.0.0/24", "10.0.0.120", "10.0.0.140"),
        excludes=(ipam.Span(ip_address("10.0.0.125"), ip_address("10.0.0.134")),),
    ),
    _pool("dual", "c", 2, _range("10.1.0.0/28"), _range("fd00::/64", "fd00::3c", "fd00::48")),
)


def _sliced(subnet: str, prefix: int, gateway: int, **more) -> ipam.IPRange:
    return ipam.IPRange(ip_network(subnet), per_node=ipam.PerNode(prefix, gateway, **more))


SLICED = (
    # As many slices as nodes that live: of two addresses, of many blocks, and beside shared ones.
    _pool("railed", "a", 4, _sliced("10.2.0.0/29", 31, 0)),
    _pool(
        "large",
        "b",
        2,
        _sliced("10.3.0.0/23", 25, 1),
        excludes=tuple(
            ipam.Span(
                ip_address(f"10.3.{n // 2}.{n % 2 * 128 + a}"),
                ip_address(f"10.3.{n // 2}.{n % 2 * 128 + b}"),
            )
            for n in range(4)
            for a, b in ((2, 60), (67, 126))
        ),
    ),
    _pool("flat", "c", 3, _sliced("10.4.0.0/27", 29, None, is_one_subnet=True)),
    _pool("wide", "a", 4, _range("10.2.0.0/24", "10.2.0.58", "10.2.0.80", "10.2.0.60")),
)


def parts(subpool: Subpool) -> list[Subpool]:
    """The subpool of each slice."""
    assert subpool.per_node
    slices = [
        one
        for r in subpool.ranges
        for one in slices_from(r.subnet, subpool.per_node.prefix, (), int(r.subnet[0]))
    ]
    return [found for one in slices if (found := part(subpool, one))]


@dataclass
class Walk:
    """One seed's walk; `step` raises Breach."""

    seed: int
    flaw: Flaw | None = None
    steps: int = 0
    pools: tuple[ipam.IPPool, ...] = POOLS
    old: list[tuple[ipam.NodeName, ipam.ContainerId]] = field(default_factory=list)
    earlier: float = 0.2  # how often an agent that starts is of an earlier release

    def __post_init__(self) -> None:
        self.random = Random(self.seed)  # noqa: S311 - a walk that can be repeated
        self.world = World(self.random, self.pools, self.flaw, faults=0.08)
        self.requests: list[tuple[ipam.NodeName, ipam.AddressRequest]] = []
        self.backups = [self.world.store.backup()]
        self.past: list[Past] = []
        for name in NODES:
            self.world.start(self.world.machine(name))
        events = [
            (500, self._pod), (230, self._end), (60, self._again), (60, self._late_del),
            (300, self._sync), (40, self._jump), (10, self._long), (25, self._crash),
            (40, self._start), (5, self._siege), (10, self._cut), (12, self._heal),
            (5, self._power_off), (5, self._boot), (2, self._rebuild),
            (12, self._declare_dead), (10, self._collect),
            (40, self._deliver), (2, self.world.controller), (60, self._audit),
            (4, self._backup), (4, self._restore), (2, self._drop_blocks),
            (6, self._remember), (3, self._rewind),
        ]  # fmt: skip
        self.events = [event for _, event in events]
        self.weights = [weight for weight, _ in events]

    def run(self, steps: int, calm_every: int = 4000) -> None:
        """Walk so many steps."""
        while self.steps < steps:
            for _ in range(calm_every):
                self.step()
            self.calm()

    def step(self) -> None:
        """One thing happens."""
        self.steps += 1
        self.world.pass_(self.random.random() * 0.04)
        if self.random.random() < 0.8:
            self._turn()
            return
        event = self.random.choices(self.events, self.weights)[0]
        if not (self.world.recalling and event in self._disturbing()):
            event()

    def _disturbing(self) -> list[Callable[[], None]]:
        """What does not happen in the minute after the store went back, for a minute is one.

        An agent that begins then, or comes back with a view older than the backup, cannot know of
        it (docs/ip.md).
        """
        events = [self._start, self._heal, self._jump, self._long]
        events += [self._restore, self._drop_blocks, self._rewind]
        if self.world.undisturbed:
            events += [self._crash, self._siege, self._cut, self._power_off, self._rebuild]
            events += [self._declare_dead]
        return events

    def _turn(self) -> None:
        if self.random.random() < 0.1 and self.world.gc_turn():
            return
        for machine in self.random.sample(list(self.world.machines.values()), len(NODES)):
            if self.world.turn(machine):
                return
        self.world.pass_(0.3)

    def _machines(self) -> Iterable[Machine]:
        return self.world.machines.values()

    def _machine(self) -> Machine:
        return self.world.machines[self.random.choice(NODES)]

    def _pod(self) -> None:
        machine, world = self._machine(), self.world
        far = self._one(m for m in self._machines() if m.cut_off and m.agent)
        if far and self.random.random() < 0.4:
            machine = far[0]
        if not machine.agent or len(machine.tasks) > 8:
            return
        nics = []
        for number in range(self.random.choice((1, 1, 1, 2, 3))):
            pool = self.random.choice(self.pools)
            addresses, owner = (), None
            if self.random.random() < 0.05 and pool.name == "wide":
                addresses = (ip_address(f"10.0.0.{self.random.randrange(56, 84)}"),)
            elif self.random.random() < 0.2:
                owner = self.random.choice(OWNERS)
                if self._busy(owner) or any(nic.owner == owner for nic in nics):
                    continue
            nic = ipam.InterfaceName(f"net{number}")
            nics.append(ipam.NicRequest(nic, pool.name, addresses=addresses, owner=owner))
        request = ipam.AddressRequest(
            ipam.ContainerId(world.name("c")), ipam.PodUid(world.name("p")), tuple(nics)
        )
        if nics:
            self._request(machine, request)

    def _busy(self, owner: ipam.Owner) -> bool:
        """A pod of the owner lives or is being started."""
        started = any(
            nic.owner == owner and self.world.machines[node].running("add")
            for node, request in self.requests
            for nic in request.nics
        )
        return started or self.world.truth.alive(owner)

    def _request(self, machine: Machine, request: ipam.AddressRequest) -> None:
        self.requests = [*self.requests[-40:], (machine.name, request)]
        self.old = [*self.old[-40:], (machine.name, request.container)]
        self.world.add(machine, request)

    def _again(self) -> None:
        """The runtime repeats a request whose answer it did not see, or saw."""
        if not self.requests:
            return
        node, request = self.random.choice(self.requests)
        sticky = any(nic.owner for nic in request.nics)
        gone = request.container not in self.world.truth.pods
        if not (sticky and gone):
            self.world.add(self.world.machines[node], request)

    def _end(self) -> None:
        """A pod ends; its DEL comes at once, late or never."""
        world = self.world
        if not world.truth.pods:
            return
        container = self.random.choice(list(world.truth.pods))
        node = world.truth.pods[container].node
        self.requests = [
            (n, request) for n, request in self.requests if request.container != container
        ]
        if any(task.what == "add" for task in world.machines[node].tasks):
            return  # the runtime ends no sandbox that it is just making
        world.truth.dies(container, world.now)
        self.old = [*self.old[-40:], (node, container)]
        if self.random.random() < 0.8:
            world.delete(world.machines[node], container)

    def _late_del(self) -> None:
        """A DEL of a sandbox that is gone, or never came to be."""
        if self.old:
            node, container = self.random.choice(self.old)
            machine = self.world.machines[node]
            if container not in self.world.truth.pods and not machine.running("add"):
                self.requests = [(n, a) for n, a in self.requests if a.container != container]
                self.world.delete(machine, container)

    def _collect(self) -> None:
        machine = self._machine()
        if not machine.running("add"):
            self.requests = [
                (n, a) for n, a in self.requests if a.container in self.world.truth.pods
            ]
            self.world.collect(machine)

    def _sync(self) -> None:
        self.world.sync(self._machine())

    def _jump(self) -> None:
        self.world.pass_(self.random.random() * 3)

    def _long(self) -> None:
        self.world.pass_(self.random.random() * 20)

    def _crash(self) -> None:
        machine = self._machine()
        if machine.up:
            self.world.crash(machine)

    def _one(self, found: Iterable[Machine]) -> list[Machine]:
        """One of these machines, if there are any."""
        machines = list(found)
        return [self.random.choice(machines)] if machines else []

    def _start(self) -> None:
        for machine in self._one(m for m in self._machines() if m.up and m.agent is None):
            machine.is_old = self.random.random() < self.earlier
            self.world.start(machine)

    def _cut(self) -> None:
        self._machine().cut_off = True

    def _siege(self) -> None:
        """A node that lives is cut off, declared dead, and stays so until it must have stopped."""
        for machine in self._one(m for m in self._machines() if m.ready):
            machine.cut_off, machine.serving = True, False
            machine.besieged = self.world.now + 2 * TIMING.silence

    def _heal(self) -> None:
        ripe = (m for m in self._machines() if m.cut_off and self.world.now >= m.besieged)
        for machine in self._one(ripe):
            machine.cut_off = False
            machine.serving = machine.up

    def _power_off(self) -> None:
        machine = self._machine()
        self.world.power_off(machine)
        machine.serving = self.random.random() < 0.3

    def _boot(self) -> None:
        for machine in self._one(m for m in self._machines() if not m.up):
            self.world.boot(machine)

    def _rebuild(self) -> None:
        self.world.machine(self.random.choice(NODES))

    def _declare_dead(self) -> None:
        """Somebody taints a node or deletes its object: it is off, or only cut off and alive."""
        for machine in self._one(m for m in self._machines() if m.cut_off or not m.up):
            machine.serving = False

    def _deliver(self) -> None:
        self.world.store.deliver()

    def _backup(self) -> None:
        self.backups = [*self.backups[-2:], self.world.store.backup()]

    def _healed(self) -> None:
        """Half of the times all is well before the store goes back, so nothing is at risk."""
        if self.random.random() < 0.5:
            return
        for machine in self._machines():
            machine.cut_off, machine.serving = False, True
            if not machine.up:
                self.world.boot(machine)
            if machine.agent is None:
                self.world.start(machine)
        self._wait(6)

    def _restore(self) -> None:
        """Etcd goes back to one of the last backups, with or without a bumped revision.

        Never to one of a later hour than what is there: that nobody could tell (docs/ip.md).
        """
        self._healed()
        chosen = self.random.randrange(len(self.backups))
        self.backups = self.backups[: chosen + 1]
        self.world.restore(self.backups[chosen], bumped=self.random.random() < 0.5)

    def _remember(self) -> None:
        past = self.world.remember(self._machine())
        if past:
            self.past = [*self.past[-5:], past]

    def _rewind(self) -> None:
        """A virtual machine goes back to a snapshot with its memory: two renewals at least."""
        for past in self.past:
            machine, lease = self.world.machines[past.machine.name], past.agent.lease
            is_same = machine.journal == past.machine.journal and machine.boot == past.machine.boot
            newer = self.world.store.leases.get(machine.name)
            if is_same and lease and newer and newer.heartbeat > lease.heartbeat + 1:
                self.past.remove(past)
                self.requests = [(n, request) for n, request in self.requests if n != machine.name]
                self.old = [(n, container) for n, container in self.old if n != machine.name]
                self.world.rewind(past)
                return

    def _drop_blocks(self) -> None:
        """Somebody deletes a block, or all of them with their definition."""
        self._healed()
        keys = sorted(self.world.store.blocks)
        if keys:
            one = [self.random.choice(keys)]
            self.world.drop_blocks(keys if self.random.random() < 0.3 else one)
            self.backups = [self.world.store.backup()]  # in an earlier one they look newer

    def _audit(self) -> None:
        if not self.world.recalling:
            self.world.truth.audit(self.world.store)

    # The calm.

    def calm(self) -> None:
        """All nodes can be reached or are fenced: each pool can be given to its last address."""
        world, faults = self.world, self.world.faults
        world.faults = 0.0
        while world.recalling:
            self._wait(1)
        while world.store.on_their_way:
            world.store.deliver()
        dead = self._machine()
        world.power_off(dead)
        dead.serving = False
        alive = [machine for machine in world.machines.values() if machine is not dead]
        for machine in alive:
            machine.cut_off, machine.serving = False, True
            if not machine.up:
                world.boot(machine)
            if machine.agent is None:
                world.start(machine)
        self._wait(60)
        self._lost_are_reported(alive)
        for pool in self.pools:
            self._empty(alive)
            self._fill(pool, alive)
        self._empty(alive)
        world.faults = faults

    def _wait(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            self.steps += 1
            self.world.pass_(0.01)
            for machine in self.world.machines.values():
                self.world.sync(machine)
            self._turn()
            self.world.gc_turn()
        self._audit()

    def _lost_are_reported(self, alive: list[Machine]) -> None:
        """A living pod whose address was given away is reported by its node."""
        for machine in alive:
            assert machine.agent is not None
            reported = {allocation.address for _, allocation in lost(machine.agent.state)}
            for container in self.world.truth.of(machine.name):
                for allocation in self.world.truth.pods[container].allocations:
                    place = (allocation.network, allocation.address)
                    # Who took it may be gone: then nobody else has it.
                    held = self.world.truth.places.get(place, container)
                    if held != container and allocation.address not in reported:
                        raise Breach(f"{machine.name} is silent about {allocation.address}")

    def _empty(self, alive: list[Machine]) -> None:
        """All pods end, and what was released cools down."""
        self.requests, self.old = [], []
        self._served(alive)
        for container in list(self.world.truth.pods):
            self.world.truth.dies(container, self.world.now)
        self._wait(4)
        for machine in alive:
            self.world.collect(machine)
        self._wait(REST + 5)

    def _served(self, alive: list[Machine]) -> None:
        """Every request is answered, one way or the other."""
        for _ in range(20):
            if not any(machine.running("add") for machine in alive):
                return
            self._wait(1)
        raise Breach("a request is never answered")

    def _fill(self, pool: ipam.IPPool, alive: list[Machine]) -> None:
        """As many pods as the pool has addresses, on any nodes, and each gets its own."""
        if pool.ranges[0].per_node:
            self._fill_slices(pool, alive)
            return
        world, subpools = self.world, self.world.truth.catalog[pool.name]
        size = waiting = min(subpool.size for subpool in subpools)
        for _ in range(6):
            for _ in range(waiting):
                nic = ipam.NicRequest(ipam.InterfaceName("net1"), pool.name)
                request = ipam.AddressRequest(
                    ipam.ContainerId(world.name("c")), ipam.PodUid(world.name("p")), (nic,)
                )
                world.add(self.random.choice(alive), request)
            self._served(alive)
            waiting = size - len(world.truth.pods)
            if not waiting:
                return
        raise self._unfilled(pool, waiting, size)

    def _fill_slices(self, pool: ipam.IPPool, alive: list[Machine]) -> None:
        """As many pods on each node as a slice has addresses: there are as many slices as nodes."""
        world, (subpool,) = self.world, self.world.truth.catalog[pool.name]
        size = min(part.size for part in parts(subpool))
        for _ in range(6):
            missing = 0
            for machine in alive:
                lacking = size - len(world.truth.of(machine.name))
                missing += lacking
                for _ in range(lacking):
                    nic = ipam.NicRequest(ipam.InterfaceName("net1"), pool.name)
                    container, pod = ipam.ContainerId(world.name("c")), ipam.PodUid(world.name("p"))
                    world.add(machine, ipam.AddressRequest(container, pod, (nic,)))
            if not missing:
                return
            self._served(alive)
        raise self._unfilled(pool, missing, size * len(alive))

    def _unfilled(self, pool: ipam.IPPool, waiting: int, size: int) -> Breach:
        world, subpools = self.world, self.world.truth.catalog[pool.name]
        held = {c.name: [bin(h.bits & mask(s, c)) + h.node for s in subpools for h in b.holdings]
                for c, b in world.store.blocks.items()}  # fmt: skip
        return Breach(f"pool {pool.name}: {waiting} of {size} addresses are lost: {held}")
