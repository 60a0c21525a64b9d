"""The operator's loop: policies, nodes and DaemonSets are watched, and what differs is written.

    watches ─► wake ─► one look: components ─ apply, prune ─ upgrades ─ judge ─► status, Events

Level-triggered: each look computes all anew, and a look at an unchanged cluster writes nothing. Of
two policies the older one counts. Two operators with the same values at a time do no harm: both
apply the same documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from kube_base.backoff import full_jitter, has_happened
from kube_base.errors import KubeError, Refused
from kube_base.frozen import Frozen, field, replace
from kube_base.notices import Notices
from kube_client.errors import Conflict
from kube_client.kinds import EVERYWHERE, ObjectKind, Stored, Where
from kube_client.objects import Cluster
from kube_rdma.adapters.bulkhead import ObjectWalls
from kube_rdma.adapters.cluster.events import About, Events
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import CONFIG_MAP, DAEMON_SET, FULL_POD
from kube_rdma.install.installation import described
from kube_rdma.install.rules.release import MANAGER
from kube_rdma.lib.mirror import Mirror, follow_all
from kube_rdma.model.install import Values
from kube_rdma.model.kubernetes import NOT_OBSERVED, moment
from kube_rdma.model.operator import AppliedState, ClusterPolicy
from kube_rdma.operator import upgrades
from kube_rdma.operator.cluster import (
    NIC_CLUSTER_POLICY,
    NIC_CLUSTER_POLICY_OF_CLUSTER,
    apply_document,
    policy_of,
    progress_of,
)
from kube_rdma.operator.documents.nic_cluster_policy import (
    NicClusterPolicyStatus,
    PolicyVerdict,
    policy_status,
)
from kube_rdma.operator.rules.daemon_sets import COMPONENT_LABEL, MANAGED_LABEL, holds
from kube_rdma.operator.rules.placement import policy_node
from kube_rdma.operator.rules.sync import Component, components, judged, overall
from kube_rdma.operator.rules.upgrade import upgrade_state

log = structlog.get_logger()

Json = dict[str, Any]
StoredPolicy = Stored[Any, Any]


class OperatorTiming(Frozen):
    """The waits of the operator, in seconds."""

    gather: float = 0.2  # from a change to the look
    every: float = 60.0  # between two looks without a change
    upgrade: float = 15.0  # while drivers are exchanged, or wait for pods
    pause: Callable[[int], float] = field(default=full_jitter)


class OperatorPlace(Frozen):
    """The place of the operator: its namespace, and the values of its installation."""

    namespace: str  # in which all that it deploys goes
    cluster_wide: bool = False  # the CRD of policies has scope Cluster
    # Of the operator's own installation; they count for its agents too.
    values: Values = field(default_factory=dict)


class Operator:
    """The loop that brings a cluster nearer to its NicClusterPolicies.

    The policies are those of one namespace, or of the cluster. The caller runs `events`.
    """

    def __init__(
        self,
        cluster: Cluster,
        place: OperatorPlace,
        events: Events,
        timing: OperatorTiming | None = None,
    ) -> None:
        self._cluster, self._events, self._place = cluster, events, place
        self._timing = timing or OperatorTiming()
        self._wake = asyncio.Event()
        self._kind = NIC_CLUSTER_POLICY_OF_CLUSTER if place.cluster_wide else NIC_CLUSTER_POLICY
        mine = EVERYWHERE if place.cluster_wide else Where(place.namespace)
        labelled = Where(place.namespace, labels=COMPONENT_LABEL)
        self._policies = Mirror(self._kind, lambda stored: stored, self._changed, mine)
        self._daemon_sets = Mirror(DAEMON_SET, _daemon_set, self._changed, labelled)
        self._config_maps = Mirror(CONFIG_MAP, lambda stored: stored, self._changed, labelled)
        self._nodes = Mirror(NODE, _node, self._changed)
        self._pods = Mirror(FULL_POD, lambda stored: stored, self._changed, labelled)
        self._upgrades = upgrades.Upgrades(cluster)
        self._upgrading = False
        self._notices, self._walls = Notices(), ObjectWalls("NicClusterPolicy")

    async def run(self) -> None:
        """Act on every change of the cluster until cancelled; wait while the API server is away."""
        of_own = self._policies, self._daemon_sets, self._config_maps
        mirrors: tuple[Mirror[Any], ...] = (*of_own, self._nodes, self._pods)
        async with asyncio.TaskGroup() as tasks:
            await follow_all(tasks, self._cluster, self._timing.pause, *mirrors)
            failures = 0
            while True:
                self._wake.clear()
                if not any(mirror.trouble for mirror in mirrors):
                    failures = 0 if await self.look(datetime.now(UTC)) else failures + 1
                await self._sleep(failures)

    async def look(self, now: datetime) -> bool:
        """Bring the cluster nearer to its policies; return False if something is to be retried."""
        policies = sorted(self._policies.values.values(), key=lambda p: (p.created, p.name))
        first = next((p for p in policies if not p.deleting), None)
        self._upgrading = False
        well = True
        for stored in policies:
            reconcile = partial(self._reconcile, stored, first, now)
            well &= await self._walls.run((stored.uid, stored.generation), reconcile)
        if first is None:  # drivers go node by node, and closed nodes are opened
            await self._upgrade(None, None, now)
        return well

    async def _reconcile(
        self, stored: StoredPolicy, first: StoredPolicy | None, now: datetime, fault: str
    ) -> bool:
        """Bring the cluster nearer to a policy, and write its status; return False if that failed.

        If there is a `fault` of handling the policy, only a status with that fault is written.
        """
        refused: Refused | None = None
        verdict = PolicyVerdict(AppliedState.ERROR, fault)
        try:
            try:
                verdict = verdict if fault else await self._verdict(stored, first, now)
            except Refused as refusal:  # by the API server, or for somebody else's object
                refused, verdict = refusal, PolicyVerdict(AppliedState.ERROR, str(refusal))
            await self._write_status(stored, verdict, now)
        except KubeError as error:
            self._notices.warn(
                log, "policy not applied", stored.uid, str(error), policy=stored.name
            )
            return False
        self._notices.over(stored.uid)
        return refused is None and not fault

    async def _verdict(
        self, stored: StoredPolicy, first: StoredPolicy | None, now: datetime
    ) -> PolicyVerdict:
        """Write the objects that a policy wants, change drivers and labels; return the state."""
        if stored.deleting:
            return PolicyVerdict(AppliedState.NOT_READY, "The policy is being deleted")
        if first is not None and stored.uid != first.uid:
            why = f"Policy {first.name} is older and counts; delete one of them"
            return PolicyVerdict(AppliedState.ERROR, why, stalled=True)
        policy = policy_of(stored, self._place.namespace)
        if policy is None:
            return PolicyVerdict(AppliedState.ERROR, str(stored.spec.refusal), stalled=True)
        nodes = tuple(self._nodes.values.values())
        parts = components(policy, nodes, described("workloads"), self._place.values)
        await self._upgrades.label(upgrades.ready_marks(policy, nodes, self._pods.values))
        for part in parts:
            await self._write(policy, part)
        upgraded = await self._upgrade(policy, stored, now)
        waits = upgrades.waiting(policy, nodes, upgraded)
        progress = {
            name: progress_of(stored, upgrades.pods_of(stored, self._pods.values))
            for name, stored in self._daemon_sets.values.items()
            if _owned(stored, policy)
        }
        statuses = tuple(judged(part, progress, waits.get(part.name, "")) for part in parts)
        state = upgrade_state(upgraded.plan.stages) if self._drivers() else None
        return PolicyVerdict(*overall(statuses), statuses, tuple(map(str, policy.notes)), state)

    async def _upgrade(
        self, policy: ClusterPolicy | None, stored: StoredPolicy | None, now: datetime
    ) -> upgrades.UpgradeOutcome:
        """Take the next steps of changing drivers, and record them as Events.

        Without a policy also delete the DaemonSets of drivers that no node needs any more.
        """
        nodes, drivers = tuple(self._nodes.values.values()), self._drivers()
        upgraded = await self._upgrades.look(policy, nodes, drivers, self._pods.values, now)
        about = About.of(NIC_CLUSTER_POLICY, stored) if stored else None
        if drivers and about is None:  # no policy is left
            about = About.of(DAEMON_SET, drivers[0])
        if about:
            for sentence in upgraded.done:
                self._events.tell(about, "DriverUpgrade", sentence)
        state = upgrade_state(upgraded.plan.stages)
        self._upgrading = self._upgrading or not state.current
        uid = ("upgrade", stored.uid if stored else "")
        if state.reason == "UpgradeRefused" and about:
            for why in self._notices.news(uid, state.message):
                log.warning("driver not touched", why=why)
                self._events.tell(about, state.reason, why, warning=True)
        else:
            self._notices.over(uid)
        for daemon_set in drivers if policy is None else ():
            await self._prune(DAEMON_SET, daemon_set)
        return upgraded

    def _drivers(self) -> list[Stored[Any, Any]]:
        """Return the DaemonSets of drivers that are not being deleted, of whatever policy."""
        return [
            each
            for each in self._daemon_sets.values.values()
            if _is_driver(each) and not each.deleting
        ]

    async def _write(self, policy: ClusterPolicy, part: Component) -> None:
        """Apply the objects of a part that differ, and delete those that are not wanted any more.

        DaemonSets of drivers that an earlier release wrote stay until their nodes have labels,
        which this writes.
        """
        if part.name in upgrades.DRIVERS:
            nodes = tuple(self._nodes.values.values())
            drivers = [one for one in self._drivers() if one.label(COMPONENT_LABEL) == part.name]
            lacking = upgrades.adopted(nodes, drivers, self._pods.values)
            if lacking:
                await self._upgrades.label(lacking)
                return
        config_maps = [part.objects.config_map] if part.objects.config_map else []
        # The configuration first: a plugin that starts finds it.
        await self._bring(policy, part, CONFIG_MAP, config_maps)
        await self._bring(policy, part, DAEMON_SET, part.objects.daemon_sets)

    async def _bring(
        self,
        policy: ClusterPolicy,
        part: Component,
        kind: ObjectKind[Json, Any],
        wanted: Sequence[Json],
    ) -> None:
        mirror = self._config_maps if kind is CONFIG_MAP else self._daemon_sets
        names = {document["metadata"]["name"]: document for document in wanted}
        for name, document in names.items():
            # Without the label it is in no watch, and may be there all the same.
            stored = mirror.values.get(name) or await self._cluster.get(
                kind, name, policy.namespace
            )
            if stored is not None and not _owned(stored, policy):
                raise Refused(
                    f"{kind.kind} {name} belongs to another owner",
                    remedy=f"Delete it, or the policy {policy.name}",
                )
            labels = document["metadata"]["labels"]
            labelled = stored is not None and holds(dict(stored.labels), labels)
            if not (stored and labelled and holds(stored.spec, document[kind.content])):
                await apply_document(self._cluster, kind, document)
                log.info("object applied", kind=kind.kind, name=name, part=part.name)
        for name, stored in list(mirror.values.items()):
            mine = stored.label(COMPONENT_LABEL) == part.name and _owned(stored, policy)
            if mine and name not in names and not stored.deleting:
                await self._prune(kind, stored)

    async def _prune(self, kind: ObjectKind[Json, Any], stored: Stored[Json, Any]) -> None:
        """Delete an unwanted object, unless it is the DaemonSet of a driver that a node has."""
        nodes = tuple(self._nodes.values.values())
        is_driver = kind is DAEMON_SET and _is_driver(stored)
        if is_driver and upgrades.is_used(stored, nodes, self._pods.values):
            return
        await self._cluster.delete(kind, stored, unchanged=False)
        log.info("object deleted", kind=kind.kind, name=stored.name)

    async def _write_status(
        self, stored: StoredPolicy, verdict: PolicyVerdict, now: datetime
    ) -> None:
        """Write a policy's status if it has changed, and an Event when state or reason change."""
        status = policy_status(stored.status, stored.generation, verdict, moment(now))
        if _has_status(stored.status, status):
            return
        try:
            await self._cluster.merge_status(
                self._kind, stored.name, stored.namespace, status, version=stored.version
            )
        except Conflict:
            return  # it is gone or another by now, which the watch tells
        old = stored.status
        if old is None or (status.state, status.reason) != (old.state, old.reason):
            reason = "Ready" if verdict.state is AppliedState.READY else "NotReady"
            note = verdict.reason or "All that the policy asks for runs"
            warning = verdict.state is AppliedState.ERROR
            self._events.tell(About.of(NIC_CLUSTER_POLICY, stored), reason, note, warning=warning)

    def _changed(self, old: object, new: object) -> None:
        if old != new:
            self._wake.set()

    async def _sleep(self, failures: int) -> None:
        """Wait until something changes, or until the time for another try."""
        every = self._timing.upgrade if self._upgrading else self._timing.every
        seconds = min(every, self._timing.pause(failures) + 1.0) if failures else every
        if await has_happened(self._wake, seconds):
            await asyncio.sleep(self._timing.gather)  # changes come in swarms


def _has_status(old: NicClusterPolicyStatus | None, new: NicClusterPolicyStatus) -> bool:
    """Return whether a policy already has this status, as far as its definition can hold it.

    The API server drops fields that a definition does not have. NVIDIA's definitions have no
    observedGeneration, those before 26.7 no conditions, and those before 24.7 no messages of parts.
    """
    unobserved = replace(new, observed_generation=NOT_OBSERVED)
    bare = replace(unobserved, conditions=())
    parts = tuple(replace(part, message="") for part in new.applied_states)
    return old in (new, unobserved, bare, replace(bare, applied_states=parts))


def _daemon_set(stored: Stored[Any, Any]) -> Stored[Any, Any]:
    """Return a DaemonSet; raise at once for one of a driver that the rules cannot read."""
    if _is_driver(stored):
        upgrades.is_used(stored, (), {})
    return stored


def _node(stored: Stored[Any, Any]) -> Any:
    addresses = stored.status.addresses if stored.status else ()
    conditions = stored.status.conditions if stored.status else ()
    mark = stored.annotation(upgrades.CLOSED_MARK)
    changing = mark not in (None, upgrades.STARTING)
    return replace(
        policy_node(stored.name, dict(stored.labels)),
        closed=stored.spec.unschedulable,
        ours=mark is not None,
        changing=changing,
        closed_since=mark or "" if changing else "",
        away=any(one.type == "Ready" and one.status != "True" for one in conditions),
        addresses=tuple(each.address for each in addresses if each.type.endswith("IP")),
    )


def _is_driver(stored: Stored[Any, Any]) -> bool:
    """Return whether the operator wrote this DaemonSet of drivers, in this release or earlier."""
    own = stored.label(MANAGED_LABEL) == MANAGER or any(
        owner.kind == "NicClusterPolicy" for owner in stored.owners
    )
    return own and stored.label(COMPONENT_LABEL) in upgrades.DRIVERS


def _owned(stored: Stored[Any, Any], policy: ClusterPolicy) -> bool:
    """Return whether an object is the policy's; DaemonSets of drivers belong to any policy."""
    return _is_driver(stored) or any(owner.uid == policy.uid for owner in stored.owners)
