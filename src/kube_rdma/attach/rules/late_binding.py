"""Decides which promise stands for which container, when it may start and what may be forgotten.

Before a container starts, the kubelet names only share ids. Pod resources name the pod of a share,
and CNI names a pod and its sandbox. These rules bring the three together; the agent journals what
they say.

A share id goes from a dead pod to the next one, so a promise has a generation. Allocate of a share
that is bound begins a new one (`promise`), and what it replaces counts no more. Two files with one
CDI name make the runtime drop both, so a promise is bound in one sandbox at a time (`bind`).

Late binding needs CDI devices of device plugins (`cdi_works`). Where it is off, a container gets
device nodes at Allocate, which may be another device's after a move (`refuse_renumbered`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import Frozen
from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import Plan, PodNic
from kube_rdma.model.attach.steps import MoveRdma
from kube_rdma.model.card import CardId
from kube_rdma.model.device import CharKind, Device
from kube_rdma.model.errors import Outdated
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import (
    Binding,
    CdiFile,
    ContainerId,
    HeldShare,
    Nonce,
    PodName,
    Promise,
    Runtime,
    cdi_name,
)
from kube_rdma.model.pools import Attach, Grant, PoolSpec, ShareId
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.modes import terms

SETTLED = 0.05
"""Seconds after which containerd knows a new CDI file; its inotify was up to 20 ms late."""

GRACE = 60.0
"""Seconds for which no single pod must hold a promise's shares before it is forgotten. A binding
whose sandbox is gone waits as long, unless its promise goes."""


class BindingSnapshot(Frozen):
    """All promises, bindings and CDI files of a node at one moment.

    Read the files before the bindings: a binding is journalled before its file is written, so a
    file without one is then a leftover.
    """

    promises: tuple[Promise, ...]
    bindings: tuple[Binding, ...]
    files: tuple[CdiFile, ...]
    holders: Mapping[HeldShare, PodName]  # of pod resources; it leaves init containers out
    gone: Collection[ContainerId]  # sandboxes that are no more (see `doubtful`)
    owned: Collection[CardId] = ()  # cards that only one pod at a time may have


class BindDecision(Frozen):
    """The effect of CNI ADD on bindings: `outdated` ones are removed, `promises` are bound."""

    promises: tuple[Promise, ...]
    outdated: tuple[Binding, ...]


class Start(Frozen):
    """The decision that a container may start now."""


class Wait(Frozen):
    """The decision to ask again after some seconds, as the runtime may not have seen the files."""

    seconds: float


class AskPod(Frozen):
    """The decision that the pod has to be read first: whether it asks for networks."""


class PodAnswer(Frozen):
    """The answer whether a pod asks for networks; `why` tells why this node cannot give them."""

    uid: str = ""  # as the runtime knows it; "" where the API server has no such pod
    annotations: Mapping[str, str] = MappingProxyType({})
    networked: bool = False
    why: Refused | None = None


class Write(Frozen):
    """The decision to bind promises without CNI, each in the sandbox ``at_start(nonce)``.

    After that the caller calls `gate` again.
    """

    pod: PodName
    uid: str
    promises: tuple[Promise, ...]


Gate = Start | Wait | AskPod | Write


class Stale(Frozen):
    """The records to remove, in this order: files, bindings with their files, promises."""

    files: tuple[CdiFile, ...]
    bindings: tuple[Binding, ...]
    promises: tuple[Promise, ...]
    absent: Mapping[str, float]  # since when something is missing; pass it to the next call


def reported(holdings: tuple[Holding, ...] | None) -> tuple[Holding, ...]:
    """Return the kubelet's holdings of all pods; raise Unavailable for None."""
    if holdings is None:
        raise Unavailable("The kubelet does not report which pod holds which shares.")
    return holdings


def holders(holdings: Iterable[Holding]) -> dict[HeldShare, PodName]:
    """Return the pod that holds each share."""
    each = ((one, share) for one in holdings for share in one.shares)
    return {(one.resource, share): PodName(one.namespace, one.pod) for one, share in each}


def promise(
    grant: Grant,
    nonce: Nonce,
    when: float,
    promises: Iterable[Promise],
    bindings: Iterable[Binding],
) -> Promise:
    """Return the promise to record for Allocate's grant."""
    held = {(grant.resource, share) for share in grant.shares}
    bound = {binding.nonce for binding in bindings if binding.held & held}
    return Promise(
        nonce,
        grant.resource,
        grant.shares,
        grant.cards,
        cdi_name(grant.shares, nonce),
        when,
        tuple(old.nonce for old in promises if old.nonce in bound),
    )


def bind(snapshot: BindingSnapshot, pod: PodName, uid: str, container: ContainerId) -> BindDecision:
    """Return the current promises of the pod, which CNI ADD binds, and the bindings to remove.

    Promises of init containers are among them if a container holds one of their shares too. A
    repeated ADD gives the same. Raise Refused while a share or an owned card is attached to another
    pod, whose DEL is still to come.
    """
    own = (one for one in _current(snapshot.promises) if _owner(snapshot, one) == pod)
    mine = tuple(one for one in own if not _is_overtaken(snapshot, one, pod))
    attached = _conflicts(snapshot, mine, pod, uid)
    names = {one.nonce for one in mine}
    others = (b for b in snapshot.bindings if b.nonce in names and b.container != container)
    return BindDecision(mine, (*others, *attached))


def suffices(
    holdings: Iterable[Holding], promises: Iterable[Promise], bindings: Iterable[Binding] = ()
) -> bool:
    """Return whether one pod's holdings are enough to tell which promises belong to that pod.

    They are not if a promise has shares both of this pod and of another pod, or of none. Nor are
    they if a binding has other shares beside one of this pod.
    """
    mine = set(holders(holdings))
    several: tuple[Promise | Binding, ...] = (*promises, *bindings)
    return all(one.held <= mine or one.held.isdisjoint(mine) for one in several)


def doubtful(
    promises: Collection[Promise], bindings: Iterable[Binding], held: Mapping[HeldShare, PodName]
) -> tuple[Binding, ...]:
    """Return bindings without a network namespace whose pod may have ended.

    Their promise is replaced or gone, or the kubelet does not report that the pod has all their
    shares. The runtime's sandboxes show whether the pod has ended.
    """
    current = {one.nonce for one in _current(promises)}
    return tuple(
        one
        for one in bindings
        if not one.netns
        and (one.nonce not in current or any(held.get(share) != one.pod for share in one.held))
    )


def gate(  # the six things that PreStartContainer depends on
    snapshot: BindingSnapshot,
    resource: str,
    ids: Sequence[ShareId],
    attach: Attach,
    asked: PodAnswer | None,
    now: float,
) -> Gate:
    """Decide whether the container with exactly these share ids may start.

    `asked` is None while nobody has read the pod; it matters only where `attach` is AUTO and
    something is not bound yet. `now` is on the clock of the files. Which of a pod's containers is
    meant stays unknown when several hold the same ids, so all their promises have to be bound.
    Raise Refused if it may not start.
    """
    if attach is Attach.NONE:
        return Start()
    wanted = frozenset((resource, share) for share in ids)
    pod = holder(snapshot.holders, wanted)
    current = [one for one in _current(snapshot.promises) if one.held == wanted]
    if not current:
        raise Refused(
            f"nothing was promised for {_named(wanted)}, the record of its allocation is lost",
            remedy="Create the pod again, so that the kubelet allocates again",
            where=resource,
        )
    bound_since = {one.nonce: _since(snapshot, one, pod) for one in current}
    missing = tuple(one for one in current if bound_since[one.nonce] is None)
    if missing and asked is None and attach is Attach.AUTO:
        return AskPod()
    if missing:
        if asked is None or asked.networked or attach is Attach.REQUIRED:
            raise _unattached(missing[0], pod)
        _conflicts(snapshot, missing, pod, asked.uid)
        return Write(pod, asked.uid, missing)
    age = now - max(since for since in bound_since.values() if since is not None)
    return Start() if age >= SETTLED else Wait(SETTLED - age)


def is_taken_over(promises: Iterable[Promise], resource: str, ids: Sequence[ShareId]) -> bool:
    """Return whether nobody promised these shares, so that another plugin gave their devices.

    That plugin has the same ids, or it was an agent without late binding. The kubelet gives the
    devices to a container that starts again.
    """
    asked = {(resource, share) for share in ids}
    return all(one.held.isdisjoint(asked) for one in promises)


def stale(snapshot: BindingSnapshot, absent: Mapping[str, float], now: float) -> Stale:
    """Return the promises, bindings and files that can be removed.

    Call it only with holders that pod resources really reported. A promise goes if it was replaced,
    or if for GRACE no single pod has held its shares. A binding goes if its sandbox is gone without
    a DEL, and its promise goes too or no new sandbox came within GRACE. A file goes if its binding
    is no more.
    """
    replaced = {old for one in snapshot.promises for old in one.replaces}
    since: dict[str, float] = {}
    for promise in snapshot.promises:
        if _owner(snapshot, promise) is None:
            since[promise.nonce] = absent.get(promise.nonce, now)
    for binding in snapshot.bindings:
        if binding.container in snapshot.gone:
            since[binding.container] = absent.get(binding.container, now)
    late = {name for name, start in since.items() if now - start > GRACE}
    # What was replaced goes first: it would count again if only its successor were forgotten.
    old = [one for one in snapshot.promises if one.nonce in replaced]
    lost = [one for one in snapshot.promises if one.nonce in late and one.nonce not in replaced]
    kept = {one.nonce for one in snapshot.promises} - replaced - late
    over = [one for one in snapshot.bindings if one.container in snapshot.gone]
    ended = tuple(one for one in over if one.nonce not in kept or one.container in late)
    alive = {(one.container, one.nonce) for one in snapshot.bindings if one not in ended}
    files = tuple(one for one in snapshot.files if (one.container, one.nonce) not in alive)
    return Stale(files, ended, (*old, *lost), since)


def _current(promises: Collection[Promise]) -> tuple[Promise, ...]:
    """Return the promises that no other promise replaces."""
    replaced = {old for one in promises for old in one.replaces}
    return tuple(one for one in promises if one.nonce not in replaced)


def _owner(snapshot: BindingSnapshot, promise: Promise) -> PodName | None:
    """Return the only pod that holds shares of a promise; None if none or several do.

    Not all shares need a holder: pod resources leave out what only an init container holds.
    """
    pods = {snapshot.holders[share] for share in promise.held if share in snapshot.holders}
    return pods.pop() if len(pods) == 1 else None


def _is_overtaken(snapshot: BindingSnapshot, promise: Promise, pod: PodName) -> bool:
    """Return whether the kubelet has since given a share of this promise to another pod.

    Pod resources may show no holder of that share, if an init container of the other pod has it.
    The wall clock says which Allocate came later. If it was set back, both promises count, and
    conflict.
    """
    return any(
        one.when > promise.when
        and one.held & promise.held
        and _owner(snapshot, one) not in {None, pod}
        for one in _current(snapshot.promises)
    )


def holder(held: Mapping[HeldShare, PodName], asked: Collection[HeldShare]) -> PodName:
    """Return the pod that holds these shares of one resource; raise Refused for none or several."""
    pods = {held[share] for share in asked if share in held}
    (resource,) = {resource for resource, _ in asked}
    if len(pods) == 1:
        return pods.pop()
    problem = f"no pod holds {_named(asked)} according to the kubelet's pod resources"
    if pods:
        problem = f"several pods hold {_named(asked)}: {', '.join(sorted(map(str, pods)))}"
    raise Refused(
        problem,
        remedy=(
            f"Ask for {resource} in a container of the pod, not in its init containers alone: the "
            "kubelet does not list what only those hold"
        ),
        where=resource,
    )


def _since(snapshot: BindingSnapshot, promise: Promise, pod: PodName) -> float | None:
    """Return the time from which a file has bound this promise for its pod; None without one."""
    for binding in snapshot.bindings:
        if (
            binding.nonce == promise.nonce
            and binding.pod == pod
            and binding.container not in snapshot.gone
        ):
            for file in snapshot.files:
                if (file.nonce, file.container) == (binding.nonce, binding.container):
                    return file.since
    return None


def _unattached(promise: Promise, pod: PodName) -> Refused:
    cards = ", ".join(promise.cards) or "a card"
    return Refused(
        f"no network of pod {pod} is attached to {cards} for {_named(promise.held)}",
        remedy=(
            "Name a network of this card in the pod's annotation k8s.v1.cni.cncf.io/networks or "
            "k8s.volcengine.com/pod-networks and check that the CNI plugin of kube-rdma is "
            "installed on this node, then create the pod again"
        ),
        where=promise.resource,
    )


def _conflicts(
    snapshot: BindingSnapshot, mine: Iterable[Promise], pod: PodName, uid: str
) -> tuple[Binding, ...]:
    """Return other living pods' bindings with a share or an owned card of these promises.

    Raise Refused for the first that its pod needs. What is returned was never meant for its pod.
    """
    mine = tuple(mine)
    wanted = frozenset[HeldShare]().union(*(one.held for one in mine))
    cards = {card for one in mine for card in one.cards}.intersection(snapshot.owned)
    conflicts = tuple(
        one
        for one in snapshot.bindings
        if one.container not in snapshot.gone
        and (one.pod != pod or (uid and one.uid and one.uid != uid))
        and (one.held & wanted or not cards.isdisjoint(one.cards))
    )
    for other in conflicts:
        if _is_anothers(snapshot, other):
            continue
        what = _named(other.held & wanted or other.held)
        where = f"attached to pod {other.pod}, sandbox {other.container}"
        raise Refused(
            f"{what} is still {where if other.netns else f'held by pod {other.pod}, which runs'}",
            remedy="Wait until that pod has ended, or delete it; the kubelet tries again",
            where=other.resource,
        )
    return conflicts


def _is_anothers(snapshot: BindingSnapshot, binding: Binding) -> bool:
    """Return whether a binding was never meant for its pod.

    A pod that ended without a sandbox leaves its promise for a minute. The next pod with one of its
    shares binds that promise too, as if an init container had it. Later that promise is replaced,
    while another binding of the sandbox has a current promise of its pod.
    """
    current = {one.nonce: one for one in _current(snapshot.promises)}
    if binding.nonce in current:
        return False
    beside = (b for b in snapshot.bindings if b.container == binding.container)
    return any(b.nonce in current and _owner(snapshot, current[b.nonce]) == b.pod for b in beside)


def _named(held: Iterable[HeldShare]) -> str:
    first, *rest = sorted(share for _, share in held)
    return f"share {first}" + (f" and {len(rest)} more" if rest else "")


# Versions whose runtime and kubelet give a container the CDI devices that Allocate names.

Version = tuple[int, int]

# KEP-4009: CDI devices of device plugins. Alpha in 1.28, on by default since 1.29, GA in 1.31.
KUBELET: Version = (1, 29)
# CDI is on unless switched off (docs/containerd-2.0.md); since 2.4 there is no switch.
CONTAINERD_ON: Version = (2, 0)
# The CRI field is read where enable_cdi is true (containerd#8252).
CONTAINERD: Version = (1, 7)
# The CRI field is read (cri-o#6944, May 2023); from 1.23 on there were only annotations.
CRIO: Version = (1, 28)

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})")


def cdi_works(kubelet_version: str | None, runtime: Runtime | None) -> tuple[bool, str]:
    """Return whether pods get CDI devices from device plugins, and why, as a sentence."""
    kubelet = _version(kubelet_version)
    if kubelet is None:
        return False, "The version of the kubelet is not known."
    if kubelet < KUBELET:
        return False, f"The kubelet is {kubelet_version}, CDI devices need {_text(KUBELET)}."
    if runtime is None:
        return False, "The container runtime is not known."
    version = _version(runtime.version)
    if version is None:
        return False, f"The version {runtime.version!r} of {runtime.name} cannot be read."
    if runtime.name == "containerd":
        return _containerd(runtime, version)
    if runtime.name != "cri-o":
        return False, f"It is not known that {runtime.name} has CDI devices."
    if version < CRIO:
        return False, f"cri-o is {runtime.version}, CDI devices need {_text(CRIO)}."
    return True, f"cri-o is {runtime.version}."


def _containerd(runtime: Runtime, version: Version) -> tuple[bool, str]:
    who = f"containerd is {runtime.version}"
    if version < CONTAINERD:
        return False, f"{who}, CDI devices need {_text(CONTAINERD)} with enable_cdi."
    if runtime.cdi is False:
        return False, f"{who} and CDI is off in its configuration (enable_cdi)."
    if runtime.cdi is None and version < CONTAINERD_ON:
        return False, f"{who} and does not say whether CDI is on (enable_cdi)."
    return True, f"{who} and CDI is on."


def _version(text: str | None) -> Version | None:
    match = _VERSION.match(text or "")
    return (int(match[1]), int(match[2])) if match else None


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


# Device nodes that a container gets at Allocate, although their devices move afterwards.


def renumbered(specs: Iterable[PoolSpec], mode: NamespaceMode) -> Iterator[str]:
    """Yield a sentence about each pool whose containers may keep outdated device nodes."""
    for spec in specs:
        row = terms(spec)
        if mode is NamespaceMode.EXCLUSIVE and row.owns and row.attach is Attach.NONE:
            yield (
                f"{spec.resource} gives device nodes before its RDMA devices move into pods, which "
                "may renumber them: write attach: auto into its pool in a NodePolicy."
            )


def refuse_renumbered(
    plans: Sequence[Plan], placed: Sequence[PodNic], devices: Sequence[Device]
) -> None:
    """Raise Outdated if a moved device has a uverbs node that its container did not get.

    `devices` are as they are since the move.
    """
    for plan, nic in zip(plans, placed, strict=True):
        moved = any(isinstance(step, MoveRdma) for step in plan.steps)
        if nic.share is None or not (nic.share.early and moved):
            continue
        for device in (one for one in devices if one.name in nic.devices):
            paths = {one.path for one in device.char_devices if one.kind is CharKind.UVERBS}
            if not paths <= set(nic.share.char_paths):
                had = [p for p in nic.share.char_paths if p.rpartition("/")[2].startswith("uverbs")]
                given = listed(had or ["none"])
                raise Outdated(
                    f"{device.name} is {listed(sorted(paths))} since it moved into the pod, and "
                    f"the container was given {given}, so only a new pod can use it"
                )
