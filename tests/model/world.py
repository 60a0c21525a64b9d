"""Nodes, controllers and an API server in one process: every act is a turn that may go wrong.

The product's own generators run here (ip_serve, ip_patrol), one act at a time, between each other.
Clocks: each machine and controller has its own, which begins anywhere; time passes alike on all.
Wall clocks do not exist, so nothing can depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from math import inf
from random import Random
from typing import get_args

from msgspec import structs

from kube_base.errors import Broken, Unavailable
from kube_rdma.model.ipam import (
    Address,
    Ask,
    Block,
    BootId,
    Cell,
    ContainerId,
    IPPool,
    JournalId,
    NetworkName,
    NodeLease,
    NodeName,
    Timing,
)
from kube_rdma.rules.ipam import agent as serve
from kube_rdma.rules.ipam import effects as talk
from kube_rdma.rules.ipam.blocks import went_back
from kube_rdma.rules.ipam.cells import cell_of, zones
from kube_rdma.rules.ipam.gc import ClusterView, Post, patrol
from kube_rdma.rules.ipam.grant import Granted
from kube_rdma.rules.ipam.node_state import load

from .machine import NOTHING, Machine, Task
from .store import Backup, Store, Write
from .truth import Pod, Truth

REQUESTS = (talk.ReadBlock, talk.ReadLease, talk.ReadBoard, talk.ListBlocks, *get_args(Write))

TIMING = Timing(contact=30.0, margin=3.0, patience=2.0, recall=25.0)
RECONNECT = 3.0  # seconds at most, from a restore to the lists of a node that can be reached


class Flaw(StrEnum):
    """A mistake that an allocator could have; the walk must find each one."""

    LOST_SWAP = "writes do not compare versions"
    EARLY_REUSE = "addresses do not rest"
    NO_FSYNC = "the journal reaches the disk later"
    FORGOTTEN_FENCE = "the controller reclaims without fencing"
    ENDLESS_RIGHT = "a node grants without contact"
    DOUBLE_CLAIM = "a claim that failed counts as made"
    NO_DOUBT = "a write without answer counts as not done"
    DEL_BY_POD = "a late DEL frees the new sandbox's addresses"
    OLD_STORE = "a store that went back is believed"
    NO_RECALL = "a node claims before others have asked back"


@dataclass(frozen=True)
class Past:
    """A machine with its memory, at one moment; requests under way are not kept."""

    machine: Machine
    desk: talk.IpamAgentState
    pods: tuple[Pod, ...]
    now: float


class Believing(talk.IpamAgentState):
    """A desk that never hears that the store went back."""

    def go_back(self, now: float, *, alone: bool = False) -> None:
        """Nothing."""


@dataclass
class World:
    """Everything there is; `turn` and the other verbs are what a walk can do with it."""

    random: Random
    pools: tuple[IPPool, ...]
    flaw: Flaw | None = None
    faults: float = 0.0
    now: float = 1000.0
    machines: dict[NodeName, Machine] = field(default_factory=dict)
    posts: list[tuple[Post, float]] = field(default_factory=list)
    patrols: list[Task] = field(default_factory=list)
    next_patrol: float = 0.0
    names: int = 0
    refusals: int = 0
    recall_end: float = 0.0  # of the minute after the store went back
    undisturbed: bool = False  # in that minute every node can ask back what it has

    def __post_init__(self) -> None:
        self.store = Store(self.random, checks=self.flaw is not Flaw.LOST_SWAP)
        catalog = {pool.name: zones(pool) for pool in self.pools}
        self.truth = Truth(catalog)
        self.store.fenced = self.truth.fenced
        if self.flaw is Flaw.EARLY_REUSE:
            catalog = {n: tuple(replace(z, rest=0.0) for z in zs) for n, zs in catalog.items()}
        self.catalog = catalog
        self.rest = max(pool.rest for pool in self.pools)
        self.post()

    def name(self, prefix: str) -> str:
        """A name that nothing else has."""
        self.names += 1
        return f"{prefix}{self.names}"

    # What people and hardware do.

    def machine(self, name: NodeName) -> Machine:
        """A new machine under this name, with an empty disk."""
        old = self.machines.get(name)
        if old:
            self.power_off(old)
        journal, boot = JournalId(self.name("j")), BootId(self.name("b"))
        self.machines[name] = Machine(name, journal, boot, self.random.uniform(-1e6, 1e6))
        return self.machines[name]

    def power_off(self, machine: Machine) -> None:
        """Its agent and all its pods are gone; held up requests are still on their way."""
        self.crash(machine)
        machine.up = False
        for container in self.truth.of(machine.name):
            self.truth.dies(container, self.now)

    def boot(self, machine: Machine) -> None:
        """It comes back with its disk; its clock begins anew."""
        machine.up, machine.serving = True, True
        machine.boot = BootId(self.name("b"))
        machine.offset = self.random.uniform(-1e6, 1e6)

    def crash(self, machine: Machine) -> None:
        """The agent dies; a request that it was about to send may still have left."""
        for task in machine.tasks:
            if isinstance(task.act, talk.WriteBlock | talk.WriteLease | talk.WriteBoard):
                if task.answer is NOTHING and self.random.random() < 0.5:
                    self.store.on_their_way.append(task.act)
            elif isinstance(task.act, talk.Put) and self.random.random() < 0.5:
                self._put(machine, task.act)
        machine.crash()

    def start(self, machine: Machine) -> None:
        """The agent starts: it has its disk, and knows nothing else."""
        lease = NodeLease(machine.name, machine.journal, machine.boot, duration=TIMING.contact)
        state = load(machine.name, machine.disk.values(), self._clock(machine))
        kind = Believing if self.flaw is Flaw.OLD_STORE else talk.IpamAgentState
        timing = replace(TIMING, recall=0.0) if self.flaw is Flaw.NO_RECALL else TIMING
        machine.desk = kind(lease, state, timing, self.catalog)
        machine.next_renew = self.now + TIMING.contact / 3

        def entered(result: object) -> None:
            machine.entered = result is None
            if isinstance(result, Broken):
                raise result
            if not machine.entered:
                self.crash(machine)

        self._begin(machine, Task("enter", serve.enter(machine.desk), entered))

    def add(self, machine: Machine, ask: Ask) -> None:
        """The runtime asks for a sandbox's addresses."""

        def answered(result: object) -> None:
            if isinstance(result, Granted):
                if self.random.random() >= self.faults:  # else the runtime gave up waiting
                    is_late = machine.unaware and self.now > self.recall_end
                    risky = is_late or machine.rewound
                    self.truth.lives(ask, machine.name, result.leases, self.now, risky=risky)
            else:
                self.refusals += 1

        if machine.desk:
            self._begin(machine, Task("add", serve.add(machine.desk, ask), answered))

    def delete(self, machine: Machine, container: ContainerId) -> None:
        """The runtime removes a sandbox, perhaps late, perhaps again."""
        if machine.desk:
            if self.flaw is Flaw.DEL_BY_POD and (living := self.truth.of(machine.name)):
                container = living[-1]
            self._begin(
                machine, Task("delete", serve.delete(machine.desk, container), lambda _: None)
            )

    def collect(self, machine: Machine) -> None:
        """The runtime tells which sandboxes live."""
        if machine.desk and not machine.running("collect"):
            living = frozenset(self.truth.of(machine.name))
            talk_ = serve.collect(machine.desk, living, self._clock(machine))
            self._begin(machine, Task("collect", talk_, lambda _: None))

    def post(self) -> None:
        """A controller starts, perhaps beside another one that has not noticed yet."""
        timing = TIMING
        self.posts = [*self.posts[-1:], (Post(self.rest, timing), self.random.uniform(-1e6, 1e6))]

    def restore(self, backup: Backup, *, bumped: bool) -> None:
        """Etcd goes back to an earlier hour; all watches end."""
        self._watches_are_near()
        self.store.restore(backup, bumped=bumped)
        self._recall()

    def drop_blocks(self, cells: list[Cell]) -> None:
        """Somebody deletes blocks by hand."""
        self._watches_are_near()
        for cell in cells:
            self.store.delete(cell)
        self._recall()

    def remember(self, machine: Machine) -> Past | None:
        """A snapshot of a virtual machine whose agent works."""
        if machine.desk is None or not machine.entered or machine.tasks:
            return None
        pods = tuple(self.truth.pods[container] for container in self.truth.of(machine.name))
        past = replace(machine, disk=dict(machine.disk), shown=dict(machine.shown), tasks=[])
        return Past(past, _copied(machine.desk), pods, self.now)

    def rewind(self, past: Past) -> None:
        """A machine is what it was, its pods too; their addresses may be others' by now."""
        machine = self.machines[past.machine.name]
        for container in self.truth.of(machine.name):
            self.truth.pods[container].at_risk = True  # gone at once, without a rest
        self.power_off(machine)
        for place in tuple(self.truth.left):  # what rested there, it does not know any more
            if self._holder(*place) == machine.name:
                del self.truth.left[place]
        again = replace(past.machine, disk=dict(past.machine.disk), desk=_copied(past.desk))
        again.offset = past.machine.offset + past.now - self.now
        again.cut_off, again.serving, again.tasks = False, True, []
        again.shown, again.era = dict(past.machine.shown), -1  # its connections are gone
        again.next_renew, again.rewound = self.now, True
        self.machines[machine.name] = again
        for pod in past.pods:
            self.truth.pods[pod.ask.container] = replace(pod, at_risk=True)

    def _watches_are_near(self) -> None:
        """Watches and requests lag by milliseconds, backups by hours: here they come before."""
        self._catch_up()
        for machine in self.machines.values():
            for task in machine.tasks:
                if task.answer is NOTHING and isinstance(task.act, REQUESTS):
                    try:
                        task.answer = self._act(machine, task, task.act)
                    except Unavailable as error:
                        task.throw(error)
            machine.tasks = [task for task in machine.tasks if not task.over]
        self._catch_up()

    def _catch_up(self) -> None:
        for machine in self.machines.values():
            if machine.desk and not machine.cut_off:
                self._hear(machine, len(self.store.log))

    def _recall(self) -> None:
        """From now on all nodes have a minute; who cannot be reached by then is at risk."""
        for machine in self.machines.values():
            if not machine.entered:  # what begins then cannot know of it
                machine.crash()
        self.recall_end = self.now + RECONNECT + TIMING.recall - 1.0
        ready = [m for m in self.machines.values() if self._can_ask_back(m)]
        self.truth.recalling = self.store
        self.undisturbed = len(ready) == len(self.machines) and self.random.random() < 0.7
        for machine in self.machines.values():
            machine.unaware = machine.desk is not None
            if machine.desk:
                machine.desk.is_blind = partial(self._is_blind, machine)
            machine.reconnects = self.now + self.random.uniform(0.0, RECONNECT)
        for pod in self.truth.pods.values():
            for lease in pod.leases:
                holder = self._holder(lease.network, lease.address)
                if holder and holder != pod.node and self.machines[holder] not in ready:
                    pod.at_risk = True  # the holder cannot give it back

    def _is_blind(self, machine: Machine) -> bool:
        """Its watch broke with the server that was stopped; it comes back in a moment."""
        return machine.era != self.store.era

    def _can_ask_back(self, machine: Machine) -> bool:
        """It runs, is in contact, and no lease of an earlier machine of its name holds it up."""
        if not machine.entered or machine.cut_off or machine.desk is None:
            return False
        lease, own = self.store.leases.get(machine.name), machine.desk.lease
        is_own = lease is None or lease.journal == machine.journal
        return is_own or (own is not None and lease.beat < own.beat)

    def _holder(self, network: NetworkName, address: Address) -> NodeName | None:
        cell, bit = cell_of(network, address)
        block = self.store.blocks.get(cell)
        return next((h.node for h in block.holdings if h.bits & bit), None) if block else None

    @property
    def recalling(self) -> bool:
        """It is the minute after the store went back."""
        return self.now < self.recall_end

    # What time brings.

    def pass_(self, seconds: float) -> None:
        """Time passes, and what is done at intervals begins."""
        was_recalling = self.recalling
        self.now += seconds
        if was_recalling and not self.recalling:
            self.truth.recalled(self.store, strict=self.undisturbed)
            self.truth.recalling = None
        for machine in self.machines.values():
            if not machine.entered or machine.desk is None:
                continue
            self._notice(machine, machine.desk)
            if self.now >= machine.next_renew and not machine.running("renew"):
                machine.next_renew = self.now + TIMING.contact / 3
                self._begin(machine, Task("renew", serve.renew(machine.desk), lambda _: None))
            if self.now >= machine.next_tick and not machine.running("tick"):
                machine.next_tick = self.now + 1.0
                self._begin(machine, Task("tick", serve.tick(machine.desk), lambda _: None))
        if self.now >= self.next_patrol and len(self.patrols) < 3:
            self._begin_patrol()

    def _notice(self, machine: Machine, desk: talk.IpamAgentState) -> None:
        """Its watch comes back after a restore, and who knows of one renews at once."""
        if machine.unaware and self.now >= machine.reconnects:
            self.sync(machine)
            machine.unaware = machine.era != self.store.era
        if desk.is_back:
            machine.rewound = False
            machine.next_renew = self.now

    def _begin_patrol(self) -> None:
        self.next_patrol = self.now + 2.0
        post, offset = self.random.choice(self.posts)
        serving = frozenset(n for n, m in self.machines.items() if m.serving)
        store, leases = self.store, dict(self.store.leases)
        if self.flaw is Flaw.FORGOTTEN_FENCE:
            for node in set(leases) - serving:
                leases[node] = replace(leases[node], fenced=True)
                self.truth.fenced(node)
        scene = ClusterView(dict(store.blocks), leases, tuple(store.boards.values()), serving)
        task = Task(f"{offset}", patrol(post, scene), lambda _: None)
        task.begin()
        self.patrols.append(task)

    def sync(self, machine: Machine) -> None:
        """A watch delivers some of what it has not told yet; everything after a break."""
        desk = machine.desk
        if desk is None or machine.cut_off or self.now < machine.reconnects:
            return
        if machine.era != self.store.era:
            self._watch_again(machine)
        self._hear(machine, machine.heard + self.random.randrange(40))
        desk.boards = dict(self.store.boards)

    def _watch_again(self, machine: Machine) -> None:
        """The watch begins with a list, or goes on in silence where versions have caught up."""
        machine.era = self.store.era
        at = self.store.after(machine.told)
        if self.store.version >= machine.high and at is not None:
            machine.heard = at
            return
        machine.heard, machine.told = len(self.store.log), self.store.version
        self._saw_version(machine, self.store.version)
        for cell in sorted({*machine.shown, *self.store.blocks}):
            self._show(machine, cell, self.store.blocks.get(cell))

    def _hear(self, machine: Machine, end: int) -> None:
        news = self.store.log[machine.heard : end]
        machine.heard += len(news)
        for version, cell, block in news:
            machine.told = version
            machine.high = max(machine.high, version)
            self._show(machine, cell, block)

    def _show(self, machine: Machine, cell: Cell, block: Block | None) -> None:
        desk = machine.desk
        assert desk
        if went_back(machine.shown.get(cell), block):
            desk.go_back(self._clock(machine))
        machine.shown.pop(cell, None)
        if block:
            machine.shown[cell] = block
        desk.saw(cell, block)

    def _saw_version(self, machine: Machine, version: int) -> None:
        """Every answer that shows the store's present version is compared with those before."""
        if version < machine.high and machine.desk:
            machine.desk.go_back(self._clock(machine))
            machine.high = 0
        machine.high = max(machine.high, version)

    def turn(self, machine: Machine) -> bool:
        """One act of one task of the machine; False: all of them wait."""
        ready = [task for task in machine.tasks if task.wakes <= self.now]
        if not ready:
            return False
        task = self.random.choice(ready)
        self._perform(machine, task)
        machine.tasks = [task for task in machine.tasks if not task.over]
        return True

    def patrol_turn(self) -> bool:
        """One act of a controller."""
        if not self.patrols:
            return False
        task = self.random.choice(self.patrols)
        try:
            task.send(self._controlled(task))
        except Unavailable as error:
            task.throw(error)
        self.patrols = [task for task in self.patrols if not task.over]
        return True

    # How acts are carried out.

    def _begin(self, machine: Machine, task: Task) -> None:
        task.begin()
        if not task.over:
            machine.tasks.append(task)

    def _clock(self, machine: Machine) -> float:
        return self.now + machine.offset

    def _perform(self, machine: Machine, task: Task) -> None:
        act = task.act
        assert act is not None
        if task.answer is not NOTHING:
            task.send(task.answer)
            return
        try:
            answer = self._act(machine, task, act)
        except Unavailable as error:
            task.throw(error)
            return
        if isinstance(act, talk.Pause) and not task.wakes:
            task.wakes = self.now + act.seconds * self.random.random() + 0.01
            task.answer = None
        elif isinstance(act, talk.Clock | talk.Put | talk.ListBlocks) or self.random.random() < 0.6:
            task.send(answer)
        else:
            task.answer = answer  # on its way back, while others go on

    def _act(self, machine: Machine, task: Task, act: talk.Act):
        match act:
            case talk.Clock():
                return self._clock(machine)
            case talk.Pause():
                return None
            case talk.Put():
                return self._put(machine, act)
            case talk.Remove(container):
                machine.disk.pop(container, None)
                machine.cache.pop(container, None)
                return None
        answer = self.store.ask(act, machine.cut_off, self.faults)
        if isinstance(act, talk.ListBlocks):
            machine.shown, machine.heard = dict(answer), len(self.store.log)
            machine.era, machine.told = self.store.era, self.store.version
            machine.unaware = machine.rewound = False
            self._saw_version(machine, self.store.version)
        elif answer and isinstance(act, talk.WriteBlock | talk.WriteLease):
            self._saw_version(machine, int(answer.version))
        if self.flaw is Flaw.DOUBLE_CLAIM and isinstance(act, talk.WriteBlock) and not answer:
            return replace(act.block, version=str(self.store.version))
        if self.flaw is Flaw.ENDLESS_RIGHT and machine.entered and machine.desk:
            machine.desk.state = replace(machine.desk.state, right_until=inf)
        lost = isinstance(act, talk.WriteBlock) and not answer and machine.entered
        if self.flaw is Flaw.NO_DOUBT and lost:
            self._forget_doubt(machine, act)
            raise Unavailable("the API server does not answer")
        return answer

    def _forget_doubt(self, machine: Machine, act: talk.WriteBlock) -> None:
        desk = machine.desk
        assert desk is not None
        holds = dict(desk.state.holds)
        hold = holds[act.block.cell]
        holds[act.block.cell] = replace(hold, leaving=0, doubt=False)
        desk.state = replace(desk.state, holds=holds)

    def _put(self, machine: Machine, act: talk.Put) -> None:
        if self.flaw is Flaw.NO_FSYNC:
            machine.cache[act.booking.container] = act.booking
            if self.random.random() < 0.02:
                machine.disk.update(machine.cache)
                machine.cache = {}
        else:
            machine.disk[act.booking.container] = act.booking

    def _controlled(self, task: Task):
        act = task.act
        assert act is not None
        if isinstance(act, talk.Clock):
            return self.now + float(task.what)
        answer = self.store.ask(act, False, self.faults)
        if self.flaw is Flaw.FORGOTTEN_FENCE and isinstance(answer, NodeLease):
            return replace(answer, fenced=True)
        return answer


def _copied(desk: talk.IpamAgentState) -> talk.IpamAgentState:
    """Values are frozen; what changes in place is copied, and nothing is under way."""
    return structs.replace(
        desk, blocks=dict(desk.blocks), busy=set(), serving=set(), lacking={}, awaited={}
    )
