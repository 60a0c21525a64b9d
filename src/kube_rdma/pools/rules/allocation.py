"""Answers the kubelet's Allocate: the Grant of a container that holds these shares, or a refusal.

The kubelet may ask again for shares that it gave already. A refusal is final for the pod, which
fails at admission.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.errors import Refused, Unavailable
from kube_rdma.lib.phrases import listed
from kube_rdma.model import pools as model
from kube_rdma.model.attach.attachment import Attachment, GrantedShare, Plan
from kube_rdma.model.attach.steps import MakeRdma, MoveRdma
from kube_rdma.model.card import Card
from kube_rdma.model.device import CharKind
from kube_rdma.model.late_binding import HeldShare
from kube_rdma.pools.rules.modes import terms


def known_pools(pools: Mapping[str, model.Pool] | None) -> Mapping[str, model.Pool]:
    """Return the offered pools; raise Unavailable for None, just after the agent's start."""
    if pools is None:
        raise Unavailable("The cards of this node are not known yet: the agent has just started.")
    return pools


def allocate(pool: model.Pool, wanted: Sequence[model.ShareId]) -> model.Grant:
    """Return the grant of the shares `wanted`, each once and in order.

    Raise Refused for no share, unknown ids and unhealthy shares, with the reasons of the cards, and
    for a pool that claims serve by now.
    """
    if pool.spec.serve is model.Serving.CLAIMS:
        problem = "claims serve it on this node now, and not the device plugin"
        raise _refused(pool, problem, "Create the pod again, so that the scheduler places it")
    if not wanted:
        problem = "the request names no share"
        raise _refused(pool, problem, f"Ask for at least 1 {pool.spec.resource}")
    shares = pool.index
    unknown = [name for name in wanted if name not in shares]
    if unknown:
        problem = f"none of its {len(shares)} shares is named {listed(unknown)}"
        raise _refused(pool, problem, "Create the pod again, the kubelet then picks present shares")
    given = [shares[name] for name in dict.fromkeys(wanted)]
    if not all(share.healthy for share in given):
        ill = {share.card for share in given if not share.healthy}
        cards = [card for card in pool.unusable if None in ill or card.id in ill]
        reasons = listed([f"{card.name} ({', '.join(card.reasons)})" for card in cards])
        problem = (
            f"none of its cards can be used: {reasons}"
            if None in ill
            else f"cards of these shares cannot be used: {reasons}"
        )
        raise _refused(pool, problem, "Repair a card, then create the pod again")
    return grant(pool, given)


def grant(pool: model.Pool, shares: Sequence[model.Share]) -> model.Grant:
    """Return the device paths, variables and cards of a container that holds these shares."""
    cards = granted_cards(pool, shares)
    return model.Grant(
        resource=pool.spec.resource,
        shares=tuple(share.id for share in shares),
        char_paths=tuple(sorted({*_device_paths(pool, cards), *pool.spec.extra_paths})),
        env=tuple(_variables(pool, cards)),
        cards=tuple(card.id for card in cards),
    )


def granted_cards(pool: model.Pool, shares: Sequence[model.Share]) -> tuple[Card, ...]:
    """Return the cards behind the shares: all of the pool, or those that the shares name."""
    if terms(pool.spec).bind is model.Bind.POOL:
        return pool.cards
    cards = {card.id: card for card in pool.cards}
    return tuple(cards[name] for name in dict.fromkeys(s.card for s in shares if s.card))


def share_cards(pools: Mapping[str, model.Pool], held: HeldShare) -> tuple[Card, ...]:
    """Return the cards of one share; none if the share or its card is not offered now."""
    resource, share = held
    pool = pools.get(resource)
    return granted_cards(pool, [pool.index[share]]) if pool and share in pool.index else ()


def _device_paths(pool: model.Pool, cards: Sequence[Card]) -> Iterator[str]:
    """Yield the paths of device files that the pool gives for these cards, rdma_cm and vfio too."""
    gives = pool.spec.device_files
    devices = [device for card in cards for device in (*card.devices, *card.management)]
    yield from (c.path for device in devices for c in device.char_devices if c.kind in gives)
    if devices and pool.rdma_cm and CharKind.RDMA_CM in gives:
        yield pool.rdma_cm
    yield from (path for card in cards for path in card.vfio_paths)


def _variables(pool: model.Pool, cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
    """Yield PCIDEVICE_<RESOURCE> and its _INFO variable, if the pool's `variables` ask for them."""
    if pool.spec.variables is not model.Variables.PCIDEVICE:
        return
    name = "PCIDEVICE_" + "".join(c if c.isalnum() else "_" for c in pool.spec.resource).upper()
    yield name, ",".join(card.id for card in cards)
    facts = {card.id: card_facts(pool, card) for card in cards}
    yield f"{name}_INFO", json.dumps(facts, separators=(",", ":"))


def card_facts(pool: model.Pool, card: Card) -> dict[str, dict[str, str]]:
    """Return a card's entry in the _INFO variable: generic, rdma, vfio and facts of the document.

    The vfio part is as in pkg/infoprovider/vfioInfoProvider.go of the SR-IOV device plugin.
    """
    facts: dict[str, dict[str, str]] = {"generic": {"deviceID": card.id}}
    rdma = {str(char.kind): char.path for device in card.devices for char in device.char_devices}
    if rdma:
        rdma |= {"rdma_dev": ",".join(device.name for device in card.devices)}
        facts["rdma"] = rdma | ({"rdma_cm": pool.rdma_cm} if pool.rdma_cm else {})
    if card.vfio_paths:
        facts["vfio"] = dict(zip(("dev-mount", "mount"), card.vfio_paths, strict=True))
    extra: dict[str, str] = {}
    for entry in sorted(pool.spec.extra_info, key=lambda one: one.card != "*"):
        if entry.card in ("*", card.id):
            extra |= dict(entry.facts)
    return facts | ({"extraInfo": extra} if extra else {})


def _refused(pool: model.Pool, problem: str, remedy: str) -> Refused:
    return Refused(problem, remedy=remedy, where=pool.spec.resource)


def device_infos(
    pool: model.Pool, given: model.Grant
) -> tuple[tuple[model.ShareId, model.DeviceInfo], ...]:
    """Return by share the facts about granted cards that CNI plugins need.

    Shares of a whole pool have none, nor have cards without a PCI function. Soft RDMA devices are
    left out.
    """
    if terms(pool.spec).bind is model.Bind.POOL:
        return ()
    cards = {card.id: card for card in pool.cards}
    infos = []
    for name in given.shares:
        share = pool.index.get(name)
        card = cards.get(share.card) if share and share.card else None
        if card and card.position:
            names = tuple(device.name for device in card.devices if not device.is_soft)
            physical = card.position.physical_function
            infos.append((name, model.DeviceInfo(card.position.pci, names, physical)))
    return tuple(infos)


# Limits: a pod may take of each RDMA device what its shares allow together.

UsedDevices = Sequence[tuple[Plan, tuple[str, ...]]]
"""The names of the RDMA devices that each plan moves or makes."""


def limited(pools: Mapping[str, model.Pool]) -> dict[str, model.RdmaLimits]:
    """Return the RDMA limits of a share by resource; skip resources without limits."""
    limits = {name: pool.spec.limits for name, pool in pools.items()}
    return {name: one for name, one in limits.items() if one is not None}


def unheld(resource: str) -> Refused:
    """Return the refusal of rdmaLimits, which an agent without pod networks cannot enforce."""
    return Refused(
        "the agent runs without --networks, so it cannot hold pods to rdmaLimits",
        remedy="Run it with --networks, or remove rdmaLimits from the pools of this node",
        where=resource,
    )


def device_limits(
    granted: Iterable[GrantedShare], limits: Mapping[str, model.RdmaLimits], used: UsedDevices = ()
) -> tuple[model.DeviceLimits, ...]:
    """Return the RDMA limits of a pod with these shares for each device, sorted by name.

    A device of a share without limits has none, whatever other shares of the device say.
    """
    shares: dict[str, list[model.RdmaLimits]] = {}
    for share in granted:
        names = {device.name for card in share.cards for device in card.devices}
        names |= {name for plan, devices in used if plan.held == share.held for name in devices}
        for name in names:
            own = limits.get(share.resource, model.RdmaLimits())
            shares.setdefault(name, []).extend([own] * share.slots)
    summed = []
    for name, of in sorted(shares.items()):
        handles, objects = _added([one.handles for one in of]), _added([one.objects for one in of])
        summed.append(model.DeviceLimits(name, model.RdmaLimits(handles, objects)))
    return tuple(summed)


def used_devices(attachments: Iterable[Attachment]) -> UsedDevices:
    """Return each plan with the RDMA devices that it moves into a pod, or makes there."""
    devices = []
    for plan in (plan for attachment in attachments for plan in attachment.plans):
        steps = (step for step in plan.steps if isinstance(step, MoveRdma | MakeRdma))
        names = (step.device if isinstance(step, MoveRdma) else step.name for step in steps)
        devices.append((plan, tuple(names)))
    return devices


def differing(
    wanted: Iterable[model.DeviceLimits], seen: Iterable[model.DeviceLimits]
) -> tuple[model.DeviceLimits, ...]:
    """Return the `wanted` limits that the kernel does not have; skip devices that are gone."""
    now = {one.device: one.limits for one in seen}
    return tuple(one for one in wanted if one.device in now and now[one.device] != one.limits)


def _added(numbers: Sequence[int | None]) -> int | None:
    """Return the sum of limits; None if one is unlimited or the sum too big for the kernel."""
    counts = [number for number in numbers if number is not None]
    total = sum(counts)
    return total if len(counts) == len(numbers) and total <= model.MOST else None
