"""Does late binding: promises and bindings in the journal, CDI files for the runtime.

attach/rules/late_binding decides each time from what is known at that moment, which is gathered
here. What was decided is done in the order that survives a crash: the journal first, the file after
it, and backwards when something ends.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import structlog

from kube_base.backoff import has_happened
from kube_base.errors import KubeError, Refused, Unavailable
from kube_base.frozen import Frozen, field, replace
from kube_base.notices import Notices
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.kernel.sysfs.topology_facts import facts_of
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import SettingsFolder
from kube_rdma.attach.late_binding import EarlySettings, LateBinding
from kube_rdma.attach.rules import late_binding as rules
from kube_rdma.attach.rules import settings
from kube_rdma.attach.rules.requests import is_asking
from kube_rdma.lib.records import Records, in_the_log
from kube_rdma.model import late_binding
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.device import PodLink
from kube_rdma.model.holdings import Holding
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import Attach, Bind, Grant, Pool, PoolSpec, ShareId
from kube_rdma.model.settings import PlacedNet, TopologyFacts
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rules.allocation import grant, share_cards
from kube_rdma.pools.rules.modes import terms, with_networks
from kube_rdma.pools.rules.node_health import LinksInside

if TYPE_CHECKING:
    from kube_rdma.adapters.cluster.nodes import Pods

SWEEP_SECONDS = 30.0  # after a change, and while something may have to go
REST_SECONDS = 900.0  # while every promise and binding has its pod

log = structlog.get_logger()


async def always(_: PodState) -> bool:
    """Return True for every pod."""
    return True


class BinderDependencies(Frozen):
    """Everything that late binding depends on."""

    journal: Journal[late_binding.Promise | late_binding.Binding]
    cdi: CdiFolder
    kubelet: KubeletView
    pods: Pods
    links_inside: Callable[[Path], tuple[PodLink, ...]]  # of a namespace; blocks, raises KubeError
    # the runtime's; raises Unavailable
    sandboxes: Callable[[], Awaitable[Sequence[late_binding.PodSandbox]]]
    networks: bool = False  # pods get networks from the agent
    shim: Callable[[], str | None] = lambda: None  # a path of the host
    settings: SettingsFolder = field(default_factory=SettingsFolder)
    early: Path | None = None  # folder of settings for containers whose devices Allocate gives
    topology: Callable[[Sequence[PlacedNet]], TopologyFacts] = facts_of
    # Returns whether kube-rdma makes one of a pod's networks; raises Refused where the pod cannot
    # have them on this node.
    concerned: Callable[[PodState], Awaitable[bool]] = always
    tell: Callable[[str], None] = in_the_log  # is called for each record that cannot be read


class Binder(LateBinding):
    """Late binding on one node: it binds a pod's promised shares to the devices made for it.

    One call at a time changes promises and bindings.
    """

    def __init__(self, needs: BinderDependencies) -> None:
        """Read the journal, which blocks; raise Unavailable when the disk fails."""
        self._needs = needs
        self._records = Records(needs.journal, needs.tell)
        self._lock = asyncio.Lock()
        self._notices = Notices()
        self._pools: Mapping[str, Pool] = {}
        self._early = EarlySettings(needs.early, needs.cdi, needs.shim)
        self._absent: Mapping[str, float] = {}
        self._changed = asyncio.Event()  # something was promised, or a sandbox ended

    @property
    def _promises(self) -> tuple[late_binding.Promise, ...]:
        return tuple(one for one in self._records.values if isinstance(one, late_binding.Promise))

    @property
    def _bindings(self) -> tuple[late_binding.Binding, ...]:
        return tuple(one for one in self._records.values if isinstance(one, late_binding.Binding))

    def possible(self, specs: Sequence[PoolSpec]) -> tuple[PoolSpec, ...]:
        """Return all specs: this node can bind late.

        On a node with pod networks a spec without `attach` gets the value of its mode for such
        nodes.
        """
        return tuple(with_networks(spec) if self._needs.networks else spec for spec in specs)

    def offered(self, pools: Mapping[str, Pool]) -> None:
        """Note the pools that are offered now, by resource."""
        self._pools = pools
        self._early.offered(pools)

    async def promise(self, pool: Pool, given: Grant) -> Grant:
        """Record a promise for the shares of Allocate; raise Unavailable if the disk fails.

        Return the grant with the promise's CDI name in place of device nodes. With `attach: none`
        nothing is promised: the answer is the grant, with settings.
        """
        given = await self._early.give(pool, given)
        if terms(pool.spec).attach is Attach.NONE:
            return given
        async with self._lock:
            made = rules.promise(
                given,
                late_binding.Nonce(secrets.token_hex(8)),
                time.time(),
                self._promises,
                self._bindings,
            )
            await self._records.put(_promise_name(made.nonce), made)
        self._changed.set()
        return replace(given, char_paths=(), cdi=(*given.cdi, made.cdi))

    async def start(self, pool: Pool, shares: Sequence[ShareId]) -> None:
        """Wait until the container with exactly these shares may start.

        Bind them if its pod has no network of kube-rdma. Raise KubeError if it may not start, or if
        that is not known now.
        """
        resource, attach = pool.spec.resource, terms(pool.spec).attach
        if pool.spec.bare_ids and rules.is_taken_over(self._promises, resource, shares):
            return
        asked: rules.PodAnswer | None = None
        while True:
            async with self._lock:
                holdings = rules.reported(await self._needs.kubelet.holdings())
                facts = await self._gather_facts(holdings)
                try:
                    decision = rules.gate(facts, resource, shares, attach, asked, time.monotonic())
                except Refused as error:
                    why = asked.why if asked else None
                    raise why or self._unsure(resource) or error from None
                match decision:
                    case rules.Start():
                        return
                    case rules.AskPod():
                        asked = await self._asked(facts, resource, shares)
                        continue
                    case rules.Write(pod, uid, promises):
                        for promise in promises:
                            sandbox = Sandbox(late_binding.at_start(promise.nonce), pod, uid, "", 0)
                            notes = asked.annotations if asked else {}
                            given = self._edits(promise, {}, holdings, notes)
                            await self._bind(promise, sandbox, given)
                        continue
            assert isinstance(decision, rules.Wait)
            await asyncio.sleep(decision.seconds)

    async def attach(
        self,
        sandbox: Sandbox,
        edits: Mapping[late_binding.HeldShare, late_binding.Edits] = MappingProxyType({}),
        annotations: Mapping[str, str] = MappingProxyType({}),
        holdings: Sequence[Holding] | None = None,
    ) -> tuple[late_binding.Promise, ...]:
        """End outdated bindings; bind a pod's promises in this sandbox, at CNI ADD; return them.

        `edits` has by share what was made for the pod; a promise of other shares gets the nodes of
        its cards. `annotations` are the pod's, `holdings` are all that it holds. The kubelet is
        asked if `holdings` are None or do not suffice. Raise Refused while another pod has a share
        or an owned card. Raise Unavailable if kubelet, runtime or disk fail, or a resource is not
        advertised, Broken if a CDI file has other content already.
        """
        async with self._lock:
            if not self._promises:
                return ()
            if holdings is None or (
                holdings and not rules.suffices(holdings, self._promises, self._bindings)
            ):
                holdings = rules.reported(await self._needs.kubelet.holdings())
            facts = await self._gather_facts(holdings)
            decided = rules.bind(facts, sandbox.pod, sandbox.uid, sandbox.container)
            for outdated in decided.outdated:
                await self._end(outdated)
            for promise in decided.promises:
                given = self._edits(promise, edits, holdings, annotations)
                await self._bind(promise, sandbox, given)
        return decided.promises

    async def detach(self, container: late_binding.ContainerId) -> None:
        """Remove all bindings in this sandbox, with their files; none is no error."""
        async with self._lock:
            for binding in [b for b in self._bindings if b.container == container]:
                await self._end(binding)
            await asyncio.to_thread(self._needs.cdi.remove, container)
        self._changed.set()

    async def links_inside(self, node: Sequence[Card]) -> LinksInside:
        """Return the pod and its links for each bound card without an interface on the node."""
        bound = {card: binding for binding in self._bindings for card in binding.cards}
        hidden = (card.id for card in node if card.function and not card.function.netdevs)
        inside = {card: bound[card] for card in hidden if card in bound and bound[card].netns}
        # A pod with many cards has one namespace, which is entered once.
        paths = {binding.netns for binding in inside.values()}
        links: dict[str, tuple[PodLink, ...]] = {}
        for netns in paths:
            try:
                links[netns] = await asyncio.to_thread(self._needs.links_inside, Path(netns))
            except KubeError as error:
                log.warning("pod network namespace not readable", netns=netns, why=str(error))
                links[netns] = ()
        return {card: (str(one.pod), links[one.netns]) for card, one in inside.items()}

    def cards(self) -> frozenset[CardId] | None:
        """Return the cards that are promised or bound; None if a record cannot be understood.

        Resources with `bind: pool` are left out. Each of their shares stands for all cards of the
        pool, so no pod has a card for itself.
        """
        if self._records.foreign_names:
            return None
        binds = {resource: terms(pool.spec).bind for resource, pool in self._pools.items()}
        whole = {resource for resource, bind in binds.items() if bind is Bind.POOL}
        records = (one for one in self._records.values if one.resource not in whole)
        return frozenset(card for one in records for card in one.cards)

    async def held(self) -> tuple[Holding, ...]:
        """Return the shares that the journal has as bound for running pods.

        Raise Unavailable if disk or runtime do not answer.
        """
        async with self._lock:
            facts = await self._gather_facts(())
        living = (one for one in facts.bindings if one.container not in facts.gone)
        return tuple(
            Holding(one.pod.namespace, one.pod.name, "", one.resource, one.shares) for one in living
        )

    async def sweep(self) -> None:
        """Remove outdated promises, bindings and files again and again, until cancelled."""
        while True:
            try:
                await self.forget()
                self._notices.over("sweep")
            except KubeError as error:
                self._notices.warn(log, "stale bindings not removed", "sweep", str(error))
                self._changed.set()  # again soon
            if not self._absent:
                await has_happened(self._changed, REST_SECONDS)
            self._changed.clear()
            await asyncio.sleep(SWEEP_SECONDS)

    async def forget(self) -> None:
        """Renew settings' CDI files; remove outdated promises, bindings and files.

        Raise Unavailable if kubelet, runtime or disk fail.
        """
        async with self._lock:
            await self._early.renew()
            facts = await self._gather_facts(rules.reported(await self._needs.kubelet.holdings()))
            old = rules.stale(facts, self._absent, time.monotonic())
            self._absent = old.absent
            for file in old.files:
                await asyncio.to_thread(self._needs.cdi.remove, file.container, file.nonce)
                await asyncio.to_thread(self._needs.settings.remove, file.container, file.nonce)
            for binding in old.bindings:
                cards = ",".join(binding.cards)
                log.info("binding ended without DEL", pod=str(binding.pod), cards=cards)
                await self._end(binding)
            for promise in old.promises:
                await self._records.remove(_promise_name(promise.nonce))

    async def _bind(
        self, promise: late_binding.Promise, sandbox: Sandbox, given: late_binding.Edits
    ) -> None:
        binding = late_binding.Binding(
            nonce=promise.nonce,
            container=sandbox.container,
            pod=sandbox.pod,
            uid=sandbox.uid,
            netns=sandbox.netns_path,
            resource=promise.resource,
            shares=promise.shares,
            cards=promise.cards,
            cdi=promise.cdi,
            when=time.time(),
        )
        if self._records.get(_binding_name(binding)) is None:
            await self._records.put(_binding_name(binding), binding)
        hooks = await asyncio.to_thread(self._hooks, binding, given)
        await asyncio.to_thread(self._needs.cdi.write, binding, replace(given, hooks=hooks))
        log.info("bound", pod=str(binding.pod), cards=",".join(binding.cards), cdi=binding.cdi)

    async def _end(self, binding: late_binding.Binding) -> None:
        """Remove a binding: its files, so that no container starts with it, then its record."""
        await asyncio.to_thread(self._needs.cdi.remove, binding.container, binding.nonce)
        await asyncio.to_thread(self._needs.settings.remove, binding.container, binding.nonce)
        await self._records.forget(_binding_name(binding))

    def _hooks(
        self, binding: late_binding.Binding, given: late_binding.Edits
    ) -> tuple[late_binding.RuntimeHook, ...]:
        """Write a container's settings files; return its runtime hooks, none without a shim."""
        shim = self._needs.shim()
        if shim is None:
            return ()
        pool = self._pools.get(binding.resource)
        places = tuple(device.place for device in given.used if device.place)
        topology = settings.topology_file(places, self._needs.topology(places)) if places else ""
        files = settings.settings_files(given.used, pool.spec.fabric if pool else None, topology)
        if not files:
            return (late_binding.lift_memlock(shim),)
        folder = self._needs.settings.write(binding.container, binding.nonce, files)
        return late_binding.lift_memlock(shim), late_binding.merge_settings(shim, str(folder))

    def _edits(
        self,
        promise: late_binding.Promise,
        edits: Mapping[late_binding.HeldShare, late_binding.Edits],
        holdings: Sequence[Holding],
        annotations: Mapping[str, str],
    ) -> late_binding.Edits:
        """Return the container's device nodes, and the devices in its settings files.

        The nodes are of what its networks made, else of the promised cards. The devices are of all
        resources that the container holds; none if the pod's annotation says so. Raise Unavailable
        for promised cards whose resource is not advertised now.
        """
        made = [edits[held].char_paths for held in promise.held if held in edits]
        pool = self._pools.get(promise.resource)
        if made:
            paths = {path for each in made for path in each}
        elif pool:
            shares = [pool.index[name] for name in promise.shares if name in pool.index]
            paths = set(grant(pool, shares).char_paths)
        else:
            raise Unavailable(f"{promise.resource} is not advertised on this node now.")
        held = settings.together(promise.held, holdings)
        cards = {one: share_cards(self._pools, one) for one in held}
        used = settings.devices_of(held, edits, cards)
        return late_binding.Edits(tuple(sorted(paths)), used=settings.as_asked(used, annotations))

    async def _gather_facts(self, holdings: Sequence[Holding]) -> rules.BindingSnapshot:
        """Return promises, bindings and files now; files are read before the bindings."""
        files = await asyncio.to_thread(self._needs.cdi.present)
        foreign = self._records.foreign_names
        files = tuple(file for file in files if _binding_name(file) not in foreign)
        promises, bindings, held = self._promises, self._bindings, rules.holders(holdings)
        gone = await asyncio.to_thread(_gone, bindings)
        if doubted := rules.doubtful(promises, bindings, held):
            living = [one for one in await self._needs.sandboxes() if one.ready]
            uids, pods = {one.uid for one in living}, {one.pod for one in living}
            ended = [b for b in doubted if not (b.uid in uids if b.uid else b.pod in pods)]
            gone |= {one.container for one in ended}
        pools = (pool for pool in self._pools.values() if terms(pool.spec).owns)
        owned = {card.id for pool in pools for card in pool.cards}
        return rules.BindingSnapshot(promises, bindings, files, held, gone, owned)

    def _unsure(self, resource: str) -> Unavailable | None:
        """Return an error if another version's unreadable record may have promised a resource."""
        if not self._records.foreign_names:
            return None
        return Unavailable(
            f"what was promised for {resource} may stand in a record that this version of "
            "kube-rdma does not understand: run the version that wrote it again."
        )

    async def _asked(
        self, facts: rules.BindingSnapshot, resource: str, shares: Sequence[ShareId]
    ) -> rules.PodAnswer:
        """Return what the pod that holds these shares asks for, or why it cannot have networks.

        That reason is returned, not raised: a pod that has got its networks before may start its
        containers again.
        """
        pods = {facts.holders[resource, s] for s in shares if (resource, s) in facts.holders}
        asked = rules.PodAnswer()
        for name in pods:
            pod = await self._needs.pods.read(name.namespace, name.name)
            asked = rules.PodAnswer()
            if pod:
                asked = rules.PodAnswer(pod.runtime_uid, dict(pod.annotations))
            try:
                if pod and is_asking(pod) and await self._needs.concerned(pod):
                    return replace(asked, networked=True)
            except Refused as error:
                return replace(asked, networked=True, why=error)
        return asked


def _gone(bindings: Iterable[late_binding.Binding]) -> frozenset[late_binding.ContainerId]:
    """Return the sandboxes whose network namespace is gone although its folder is there."""
    seen = (one for one in bindings if one.netns and Path(one.netns).parent.is_dir())
    return frozenset(one.container for one in seen if not Path(one.netns).exists())


def _promise_name(nonce: late_binding.Nonce) -> str:
    return f"promise-{nonce}"


def _binding_name(bound: late_binding.Binding | late_binding.CdiFile) -> str:
    return f"binding-{bound.container}-{bound.nonce}"
