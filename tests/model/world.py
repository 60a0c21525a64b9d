"""Nodes, controllers and an API server in one process: every effect is a turn that may go wrong.

The product's own operations run here (ipam/rules/agent and gc), one effect at a time, interleaved.
Clocks: each machine and controller has its own, which begins anywhere; time passes alike on all.
Wall clocks do not exist, so nothing can depend on them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from math import inf
from random import Random
from typing import get_args

from msgspec import structs

from kube_base.errors import Broken, Unavailable
from kube_base.frozen import replace
from kube_rdma.ipam.rules import agent as operations
from kube_rdma.ipam.rules import effects, reclaim
from kube_rdma.ipam.rules.blocks import held, held_by, is_rollback
from kube_rdma.ipam.rules.grant import GrantedAddresses
from kube_rdma.ipam.rules.node_state import LocalHolding, NodeAddressState, load
from kube_rdma.ipam.rules.reclaim import ClusterView, GcState
from kube_rdma.ipam.rules.subpools import key_of, subpools
from kube_rdma.model import ipam

from .machine import NOTHING, Machine, Task
from .store import Backup, Store, Write, is_shown
from .truth import Pod, Truth

REQUESTS = (
    effects.ReadBlock,
    effects.ReadLease,
    effects.ReadBorrowQueue,
    effects.ListBlocks,
    effects.ListOwnBlocks,
    effects.ListPinned,
    *get_args(Write),
)

LISTS = effects.ListBlocks | effects.ListOwnBlocks

TIMING = ipam.Timing(contact=30.0, margin=3.0, patience=2.0, recall=25.0, sight=4.0)
RECONNECT = 3.0  # seconds at most, from a restore to the lists of a node that can be reached


class Flaw(StrEnum):
    """A mistake that an allocator could have; the walk must find each one."""

    LOST_SWAP = "writes do not compare versions"
    EARLY_REUSE = "addresses do not rest"
    NO_FSYNC = "the journal reaches the disk later"
    FORGOTTEN_FENCE = "the controller reclaims without fencing"
    ENDLESS_RIGHT = "a node grants without contact"
    DOUBLE_TAKE = "an acquisition that failed counts as made"
    NO_DOUBT = "a write without answer counts as not done"
    DEL_BY_POD = "a late DEL frees the new sandbox's addresses"
    OLD_STORE = "a store that went back is believed"
    NO_RECALL = "a node acquires before others have asked back"
    LOST_LABEL = "a block without the node's label is taken for one that is gone"
    GONE_BLOCK = "a block that is gone is taken for one without the node's label"


@dataclass(frozen=True)
class Past:
    """A machine with its memory, at one moment; requests under way are not kept."""

    machine: Machine
    agent: effects.IpamAgentState
    pods: tuple[Pod, ...]
    now: float


class RollbackBlind(effects.IpamAgentState):
    """An agent that never notices that the store went back."""

    def note_rollback(self, now: float, *, of_machine: bool = False) -> None:
        """Nothing."""


class EarlierAgent(effects.IpamAgentState):
    """An agent of an earlier release, which follows all blocks."""

    def forget(self) -> None:
        """Nothing: its watch shows all of them."""
        self.sees_all, self.seen_until = True, -inf


def gc_round(state: GcState, view: ClusterView) -> effects.Effects[None]:
    """One round of the controller."""
    now: float = yield effects.Clock()
    for _, _, operation in reclaim.operations(state, view, now):
        yield from operation


@dataclass
class World:
    """Everything there is; `turn` and the other verbs are what a walk can do with it."""

    random: Random
    pools: tuple[ipam.IPPool, ...]
    flaw: Flaw | None = None
    faults: float = 0.0
    now: float = 1000.0
    machines: dict[ipam.NodeName, Machine] = field(default_factory=dict)
    controllers: list[tuple[GcState, float]] = field(default_factory=list)
    gc_rounds: list[Task] = field(default_factory=list)
    next_gc: float = 0.0
    names: int = 0
    refusals: int = 0
    recall_end: float = 0.0  # of the minute after the store went back
    recall_begun: int = 0  # how much of the store's log was written by then
    undisturbed: bool = False  # in that minute every node can ask back what it has
    dropped: dict[ipam.BlockKey, ipam.Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = Store(self.random, checks=self.flaw is not Flaw.LOST_SWAP)
        catalog = {pool.name: subpools(pool) for pool in self.pools}
        self.truth = Truth(catalog)
        self.store.fenced = self.truth.fenced
        self.store.written = self._written
        if self.flaw is Flaw.EARLY_REUSE:
            catalog = {n: tuple(replace(s, cooldown=0.0) for s in of) for n, of in catalog.items()}
        self.catalog = catalog
        self.cooldown = max(pool.cooldown for pool in self.pools)
        self.controller()

    def name(self, prefix: str) -> str:
        """A name that nothing else has."""
        self.names += 1
        return f"{prefix}{self.names}"

    # What people and hardware do.

    def machine(self, name: ipam.NodeName) -> Machine:
        """A new machine under this name, with an empty disk."""
        old = self.machines.get(name)
        if old:
            self.power_off(old)
        journal, boot = ipam.JournalId(self.name("j")), ipam.BootId(self.name("b"))
        self.machines[name] = Machine(name, journal, boot, self.random.uniform(-1e6, 1e6))
        return self.machines[name]

    def power_off(self, machine: Machine) -> None:
        """Its agent and all its pods are gone; held up requests are still on their way."""
        self.crash(machine)
        machine.up = False
        for container in self.truth.of(machine.name):
            self.truth.dies(container, self.now)

    def boot(self, machine: Machine) -> None:
        """It comes back with its disk; its clock begins again."""
        machine.up, machine.serving = True, True
        machine.boot = ipam.BootId(self.name("b"))
        machine.offset = self.random.uniform(-1e6, 1e6)

    def crash(self, machine: Machine) -> None:
        """The agent dies; a request that it was about to send may still have left."""
        for task in machine.tasks:
            if isinstance(
                task.effect, effects.WriteBlock | effects.WriteLease | effects.WriteBorrowQueue
            ):
                if task.answer is NOTHING and self.random.random() < 0.5:
                    self.store.on_their_way.append(task.effect)
            elif isinstance(task.effect, effects.Put) and self.random.random() < 0.5:
                self._put(machine, task.effect)
        machine.crash()

    def start(self, machine: Machine) -> None:
        """The agent starts: it has its disk, and knows nothing else."""
        lease = ipam.NodeLease(machine.name, machine.journal, machine.boot, duration=TIMING.contact)
        state = load(machine.name, machine.disk.values(), self._clock(machine))
        kind = EarlierAgent if machine.is_old else effects.IpamAgentState
        kind = RollbackBlind if self.flaw is Flaw.OLD_STORE else kind
        timing = replace(TIMING, recall=0.0) if self.flaw is Flaw.NO_RECALL else TIMING
        machine.agent = kind(lease, state, timing, self.catalog)
        machine.next_renew = self.now + TIMING.contact / 3

        def ready(result: object) -> None:
            machine.ready = result is None
            if isinstance(result, Broken):
                raise result
            if not machine.ready:
                self.crash(machine)

        self._begin(machine, Task("acquire", operations.acquire_lease(machine.agent), ready))

    def add(self, machine: Machine, request: ipam.AddressRequest) -> None:
        """The runtime asks for a sandbox's addresses."""

        def answered(result: object) -> None:
            if isinstance(result, GrantedAddresses):
                if self.random.random() >= self.faults:  # else the runtime gave up waiting
                    is_late = machine.unaware and self.now > self.recall_end
                    risky = is_late or machine.rewound or self._is_overtaken(machine, result)
                    self.truth.lives(
                        request, machine.name, result.allocations, self.now, risky=risky
                    )
            else:
                self.refusals += 1

        if machine.agent:
            self._begin(machine, Task("add", operations.add(machine.agent, request), answered))

    def delete(self, machine: Machine, container: ipam.ContainerId) -> None:
        """The runtime removes a sandbox, perhaps late, perhaps again."""
        if machine.agent:
            if self.flaw is Flaw.DEL_BY_POD and (living := self.truth.of(machine.name)):
                container = living[-1]
            self._begin(
                machine, Task("delete", operations.delete(machine.agent, container), lambda _: None)
            )

    def collect(self, machine: Machine) -> None:
        """The runtime tells which sandboxes live."""
        if machine.agent and not machine.running("collect"):
            living = frozenset(self.truth.of(machine.name))
            operation = operations.collect(machine.agent, living, self._clock(machine))
            self._begin(machine, Task("collect", operation, lambda _: None))

    def controller(self) -> None:
        """A controller starts, perhaps beside another one that has not noticed yet."""
        timing = TIMING
        self.controllers = [
            *self.controllers[-1:],
            (GcState(self.cooldown, timing), self.random.uniform(-1e6, 1e6)),
        ]

    def restore(self, backup: Backup, *, bumped: bool) -> None:
        """Etcd goes back to an earlier hour; all watches end."""
        self._watches_are_near()
        self.dropped = {}
        self.store.restore(backup, bumped=bumped)
        self._recall()

    def drop_blocks(self, keys: list[ipam.BlockKey]) -> None:
        """Somebody deletes blocks by hand."""
        self._watches_are_near()
        self.dropped = {key: self.store.blocks[key] for key in keys}
        for key in keys:
            self.store.delete(key)
        self._recall()

    def _is_overtaken(self, machine: Machine, granted: GrantedAddresses) -> bool:
        """Another node took the address of a block that somebody deleted, before the watch told."""
        places = [(one.network, one.address) for one in granted.allocations]
        here = [place for place in places if key_of(*place)[0] in self.dropped]
        return self.recalling and any(self._holder(*p) not in (None, machine.name) for p in here)

    def _written(self, block: ipam.Block) -> None:
        """What another node claims of a deleted block before its holder asked back is a risk."""
        before = self.dropped.get(block.key)
        if before is None or not self.recalling:
            return
        for holding in block.holdings:
            taken = holding.bits & held(before) & ~held_by(before, holding.node)
            for place in [*self.truth.places, *self.truth.left]:
                key, bit = key_of(*place)
                if key == block.key and bit & taken:
                    self.truth.left.pop(place, None)
                    pod = self.truth.pods.get(self.truth.places.get(place, ""))
                    if pod and pod.node != holding.node:
                        pod.at_risk = True

    def remember(self, machine: Machine) -> Past | None:
        """A snapshot of a virtual machine whose agent works."""
        if machine.agent is None or not machine.ready or machine.tasks:
            return None
        pods = tuple(self.truth.pods[container] for container in self.truth.of(machine.name))
        past = dataclasses.replace(
            machine, disk=dict(machine.disk), shown=dict(machine.shown), tasks=[]
        )
        return Past(past, _copied(machine.agent), pods, self.now)

    def rewind(self, past: Past) -> None:
        """A machine is what it was, its pods too; their addresses may be others' by now."""
        machine = self.machines[past.machine.name]
        for container in self.truth.of(machine.name):
            self.truth.pods[container].at_risk = True  # gone at once, without a cool-down
        self.power_off(machine)
        for place in tuple(self.truth.left):  # what cooled down there, it does not know any more
            if self._holder(*place) == machine.name:
                del self.truth.left[place]
        again = dataclasses.replace(
            past.machine, disk=dict(past.machine.disk), agent=_copied(past.agent)
        )
        again.offset = past.machine.offset + past.now - self.now
        again.cut_off, again.serving, again.tasks = False, True, []
        again.shown, again.era = dict(past.machine.shown), -1  # its connections are gone
        again.next_renew, again.rewound = self.now, True
        self.machines[machine.name] = again
        for pod in past.pods:
            self.truth.pods[pod.request.container] = dataclasses.replace(pod, at_risk=True)

    def _watches_are_near(self) -> None:
        """Watches, requests and reports lag by seconds, backups by hours: here they come before."""
        self._catch_up()
        for machine in self.machines.values():
            for task in machine.tasks:
                if task.answer is NOTHING and isinstance(task.effect, REQUESTS):
                    try:
                        task.answer = self._answer(machine, task, task.effect)
                    except Unavailable as error:
                        task.throw(error)
            machine.tasks = [task for task in machine.tasks if not task.over]
        self.store.report()
        self._catch_up()

    def _catch_up(self) -> None:
        for machine in self.machines.values():
            if machine.agent and not machine.cut_off:
                self._hear(machine, len(self.store.log))
                machine.reported = self.store.reported

    def _recall(self) -> None:
        """From now on all nodes have a minute; who cannot be reached by then is at risk."""
        for machine in self.machines.values():
            if not machine.ready:  # what begins then cannot know of it
                machine.crash()
        self.recall_end = self.now + RECONNECT + TIMING.recall - 1.0
        self.recall_begun = len(self.store.log)
        ready = [m for m in self.machines.values() if self._can_ask_back(m)]
        self.truth.recalling = self.store
        self.undisturbed = len(ready) == len(self.machines) and self.random.random() < 0.7
        for machine in self.machines.values():
            machine.unaware = machine.agent is not None
            if machine.agent:
                machine.agent.is_watch_interrupted = partial(self._is_watch_interrupted, machine)
            machine.reconnects = self.now + self.random.uniform(0.0, RECONNECT)
        for pod in self.truth.pods.values():
            for allocation in pod.allocations:
                holder = self._holder(allocation.network, allocation.address)
                if holder and holder != pod.node and self.machines[holder] not in ready:
                    pod.at_risk = True  # the holder cannot give it back

    def _is_watch_interrupted(self, machine: Machine) -> bool:
        """Its watch broke with the server that was stopped; then it renews its lease."""
        return machine.era != self.store.era or machine.renewed != self.store.era

    def _can_ask_back(self, machine: Machine) -> bool:
        """It runs, is in contact, and no lease of an earlier machine of its name holds it up."""
        if not machine.ready or machine.cut_off or machine.agent is None:
            return False
        lease, own = self.store.leases.get(machine.name), machine.agent.lease
        is_own = lease is None or lease.journal == machine.journal
        return is_own or (own is not None and lease.heartbeat < own.heartbeat)

    def _holder(self, network: ipam.NetworkName, address: ipam.Address) -> ipam.NodeName | None:
        key, bit = key_of(network, address)
        block = self.store.blocks.get(key)
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
            if not machine.ready or machine.agent is None:
                continue
            self._notice(machine, machine.agent)
            if self.recalling and self.undisturbed and self.now >= machine.next_news:
                machine.next_news = self.now + 1.0
                self.sync(machine)  # a watch that is silent for most of the minute disturbs it
            if self.now >= machine.next_renew and not machine.running("renew"):
                machine.next_renew = self.now + TIMING.contact / 3
                self._begin(
                    machine, Task("renew", operations.renew_lease(machine.agent), lambda _: None)
                )
            if self.now >= machine.next_tick and not machine.running("tick"):
                machine.next_tick = inf
                task = Task("tick", operations.tick(machine.agent), partial(self._ticked, machine))
                self._begin(machine, task)
        if self.now >= self.next_gc and len(self.gc_rounds) < 3:
            self._begin_gc()

    def _ticked(self, machine: Machine, result: object) -> None:
        """The next tick is when the rule says so, after news, or soon where something failed."""
        clock = self._clock(machine)
        due = operations.next_tick(machine.agent, clock) - clock if machine.agent else 0.0
        soon = isinstance(result, Unavailable) or due <= 0
        machine.next_tick = min(machine.next_tick, self.now + (1.0 if soon else due))

    def _notice(self, machine: Machine, agent: effects.IpamAgentState) -> None:
        """Its watch comes back after a restore, and who knows of one renews at once."""
        if machine.unaware and self.now >= machine.reconnects:
            self.sync(machine)
            machine.unaware = machine.era != self.store.era or machine.heard < self.recall_begun
            machine.next_renew = self.now
        if agent.is_rolled_back:
            machine.rewound = False
            machine.next_renew = self.now

    def _begin_gc(self) -> None:
        self.next_gc = self.now + 2.0
        controller, offset = self.random.choice(self.controllers)
        serving = frozenset(n for n, m in self.machines.items() if m.serving)
        store, leases = self.store, dict(self.store.leases)
        if self.flaw is Flaw.FORGOTTEN_FENCE:
            for node in set(leases) - serving:
                leases[node] = replace(leases[node], fenced=True)
                self.truth.fenced(node)
        view = ClusterView(dict(store.blocks), leases, tuple(store.queues.values()), serving)
        store.report()
        task = Task(f"{offset}", gc_round(controller, view), lambda _: None)
        task.begin()
        self.gc_rounds.append(task)

    def sync(self, machine: Machine) -> None:
        """A watch delivers some of what it has not shown yet; everything after a break."""
        agent = machine.agent
        if agent is None or machine.cut_off or self.now < machine.reconnects:
            return
        if machine.era != self.store.era:
            self._watch_again(machine)
        self._hear(machine, machine.heard + self.random.randrange(40))
        if agent.queues != self.store.queues:
            agent.queues, machine.next_tick = dict(self.store.queues), self.now
        self._saw_reports(machine)

    def _watch_again(self, machine: Machine) -> None:
        """The watch begins with a list, or goes on in silence where versions have caught up."""
        machine.era = self.store.era
        self._saw_reports(machine)
        at = self.store.after(machine.shown_version)
        if self.store.version >= machine.high and at is not None:
            machine.heard = at
            return
        machine.heard, machine.shown_version = len(self.store.log), self.store.version
        self._saw_version(machine, self.store.version)
        for key in sorted({*machine.shown, *self.store.blocks}):
            self._show(machine, key, self.store.blocks.get(key))

    def _hear(self, machine: Machine, end: int) -> None:
        news = self.store.log[machine.heard : end]
        machine.heard += len(news)
        for version, key, block in news:
            if self._show(machine, key, block):
                if machine.agent and (
                    key in machine.agent.unseen or machine.agent.is_news(key, block)
                ):
                    machine.next_tick = self.now
                machine.shown_version = version
                machine.high = max(machine.high, version)

    def _show(self, machine: Machine, key: ipam.BlockKey, block: ipam.Block | None) -> bool:
        """A watch tells of a block: of all while the node lacks addresses, else of its own."""
        agent, before, block = machine.agent, machine.shown.pop(key, None), machine.read(block)
        assert agent
        if agent.sees_all or is_shown(block, machine.name):
            if is_rollback(before, block):
                agent.note_rollback(self._clock(machine))
            if block:
                machine.shown[key] = block
            agent.observe(key, block)
        elif not is_shown(before, machine.name):
            return False
        elif self.flaw is Flaw.LOST_LABEL:
            agent.state = _without(agent.state, key)
        elif self.flaw is not Flaw.GONE_BLOCK:
            agent.lose_sight(key)
        return True

    def _saw_reports(self, machine: Machine) -> None:
        """Pools whose status is an older one than before show a restore too."""
        if self.store.reported < machine.reported and machine.agent:
            machine.agent.note_rollback(self._clock(machine))
        machine.reported = self.store.reported

    def _saw_version(self, machine: Machine, version: int) -> None:
        """Every answer that shows the store's present version is compared with those before."""
        if version < machine.high and machine.agent:
            machine.agent.note_rollback(self._clock(machine))
            machine.high = 0
        machine.high = max(machine.high, version)

    def turn(self, machine: Machine) -> bool:
        """One effect of one task of the machine; False: all of them wait."""
        ready = [task for task in machine.tasks if task.wakes <= self.now]
        if not ready:
            return False
        task = self.random.choice(ready)
        self._perform(machine, task)
        if task.over and task.what != "tick":
            machine.next_tick = self.now
        machine.tasks = [task for task in machine.tasks if not task.over]
        return True

    def gc_turn(self) -> bool:
        """One effect of a controller."""
        if not self.gc_rounds:
            return False
        task = self.random.choice(self.gc_rounds)
        try:
            task.send(self._controlled(task))
        except Unavailable as error:
            task.throw(error)
        self.gc_rounds = [task for task in self.gc_rounds if not task.over]
        return True

    # How effects are carried out.

    def _begin(self, machine: Machine, task: Task) -> None:
        task.begin()
        if not task.over:
            machine.tasks.append(task)
        elif task.what != "tick":
            machine.next_tick = self.now

    def _clock(self, machine: Machine) -> float:
        return self.now + machine.offset

    def _perform(self, machine: Machine, task: Task) -> None:
        effect = task.effect
        assert effect is not None
        if task.answer is not NOTHING:
            task.send(task.answer)
            return
        try:
            answer = self._answer(machine, task, effect)
        except Unavailable as error:
            task.throw(error)
            return
        if isinstance(effect, effects.Pause) and not task.wakes:
            task.wakes = self.now + effect.seconds * self.random.random() + 0.01
            task.answer = None
        elif isinstance(effect, effects.Clock | effects.Put | LISTS) or self.random.random() < 0.6:
            task.send(answer)
        else:
            task.answer = answer  # on its way back, while others go on

    def _answer(self, machine: Machine, task: Task, effect: effects.Effect):
        match effect:
            case effects.Clock():
                return self._clock(machine)
            case effects.Pause():
                return None
            case effects.Put():
                return self._put(machine, effect)
            case effects.Remove(container):
                machine.disk.pop(container, None)
                machine.cache.pop(container, None)
                return None
        if machine.is_old and isinstance(effect, effects.WriteBlock):
            effect = replace(effect, block=replace(effect.block, is_labelled=False))
        asked = effect
        if machine.is_old and isinstance(effect, effects.ListOwnBlocks):
            asked = effects.ListBlocks()
        answer = self.store.request(asked, machine.cut_off, self.faults)
        if isinstance(answer, ipam.Block):
            answer = machine.read(answer)
        if isinstance(effect, LISTS):
            answer = {key: machine.read(block) for key, block in answer.items()}
            machine.shown, machine.heard = dict(answer), len(self.store.log)
            machine.shown_version = self.store.version
            if isinstance(effect, effects.ListOwnBlocks):
                self._saw_reports(machine)
                machine.era = self.store.era
                machine.unaware = machine.rewound = False
            self._saw_version(machine, self.store.version)
        elif answer and isinstance(effect, effects.WriteBlock | effects.WriteLease):
            self._saw_version(machine, int(answer.version))
        if answer and isinstance(effect, effects.WriteLease):
            machine.renewed = self.store.era
        if self.flaw is Flaw.DOUBLE_TAKE and isinstance(effect, effects.WriteBlock) and not answer:
            return replace(effect.block, version=str(self.store.version))
        if self.flaw is Flaw.ENDLESS_RIGHT and machine.ready and machine.agent:
            machine.agent.state = replace(machine.agent.state, right_until=inf)
        lost = isinstance(effect, effects.WriteBlock) and not answer and machine.ready
        if self.flaw is Flaw.NO_DOUBT and lost:
            self._forget_doubt(machine, effect)
            raise Unavailable("the API server does not answer")
        return answer

    def _forget_doubt(self, machine: Machine, effect: effects.WriteBlock) -> None:
        agent = machine.agent
        assert agent is not None
        holdings = dict(agent.state.holdings)
        holding = holdings[effect.block.key]
        holdings[effect.block.key] = replace(holding, returning=0, uncertain=False)
        agent.state = replace(agent.state, holdings=holdings)

    def _put(self, machine: Machine, effect: effects.Put) -> None:
        if self.flaw is Flaw.NO_FSYNC:
            machine.cache[effect.record.container] = effect.record
            if self.random.random() < 0.02:
                machine.disk.update(machine.cache)
                machine.cache = {}
        else:
            machine.disk[effect.record.container] = effect.record

    def _controlled(self, task: Task):
        effect = task.effect
        assert effect is not None
        if isinstance(effect, effects.Clock):
            return self.now + float(task.what)
        answer = self.store.request(effect, False, self.faults)
        if self.flaw is Flaw.FORGOTTEN_FENCE and isinstance(answer, ipam.NodeLease):
            return replace(answer, fenced=True)
        return answer


def _without(state: NodeAddressState, key: ipam.BlockKey) -> NodeAddressState:
    """A node that takes a block for gone, and nothing there for its pods'."""
    records = {
        name: record
        for name, record in state.records.items()
        if all(key_of(one.network, one.address)[0] != key for one in record.allocations)
    }
    ends = {name: end for name, end in state.cooldown_ends.items() if name in records}
    holdings = {**state.holdings, key: LocalHolding()}
    return replace(state, holdings=holdings, records=records, cooldown_ends=ends)


def _copied(agent: effects.IpamAgentState) -> effects.IpamAgentState:
    """Values are frozen; what changes in place is copied, and nothing is under way."""
    return structs.replace(
        agent,
        blocks=dict(agent.blocks),
        unseen=set(agent.unseen),
        lends_at={},
        busy=set(),
        serving=set(),
        waiting={},
        awaited_since={},
    )
