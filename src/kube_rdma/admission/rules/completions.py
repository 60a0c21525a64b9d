"""Completes a pod that asks for shares, so that RDMA works in it as it stands.

The pod's own word counts more: what it drops or mounts itself is left as it is. Its annotation
`kube-rdma.io/complete` replaces the administrator's choice of what is added. It has a list such as
``ipc-lock, shm=16Gi, pod-networks``, or ``none``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen
from kube_rdma.admission.rules.networks import BLOCKS
from kube_rdma.admission.rules.shares import PodReview, asked, held_shares
from kube_rdma.attach.rules.requests import POD_NETWORKS, names_networks
from kube_rdma.model.admission import (
    COMPLETE,
    MOST_BLOCKS,
    SHM_VOLUME,
    USUAL,
    AdmissionSettings,
    Completes,
    Completion,
    ContainerTemplate,
    PodTemplate,
)
from kube_rdma.model.finding import FieldPath, Finding, Severity

NOTHING = "none"

SHM = "/dev/shm"  # noqa: S108 (where every program looks for it)
_LOCK = "IPC_LOCK"
_SIZE = re.compile(r"[1-9][0-9]{0,11}(?:[kMGTP]|[KMGTP]i)?")


class CompletionChoice(Frozen):
    """The completions to make for a pod; `wrong` has the unknown words of its annotation."""

    parts: tuple[Completes, ...]
    shm_size: str
    wrong: tuple[str, ...] = ()


def wanted(template: PodTemplate, settings: AdmissionSettings) -> CompletionChoice:
    """Return the completions to make: those of the pod's annotation, else the administrator's."""
    text = dict(template.annotations).get(COMPLETE)
    if text is None:
        return CompletionChoice(settings.completes, settings.shm_size)
    parts, size, wrong = [], settings.shm_size, []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, equals, value = word.partition("=")
        if equals and name == Completes.SHM and _SIZE.fullmatch(value):
            size = value
        elif equals or name not in (*Completes, NOTHING):
            wrong.append(word)
            continue
        if name != NOTHING:
            parts.append(Completes(name))
    return CompletionChoice(tuple(parts), size, tuple(wrong))


def wrong_words(review: PodReview) -> Iterator[Finding]:
    """Yield a finding for each unknown word in the annotation kube-rdma.io/complete."""
    for word in wanted(review.pod, review.settings).wrong:
        yield Finding.of(
            "complete",
            ("metadata", "annotations", COMPLETE),
            f"{json.dumps(word)} is nothing that kube-rdma completes",
            f"Write some of {', '.join(Completes)}, with {Completes.SHM}=16Gi for a size, or none",
            Severity.WARNING,
        )


def completions(
    template: PodTemplate, settings: AdmissionSettings = USUAL
) -> tuple[Completion, ...]:
    """Return what to add to a pod, in an order that can be applied.

    Return () for a pod without shares.
    """
    asking = {container.path: container for container, _ in asked(template, settings.shares)}
    if not asking:
        return ()
    chosen = wanted(template, settings)
    made: list[Completion] = []
    if Completes.IPC_LOCK in chosen.parts:
        made += [each for one in asking.values() for each in _ipc_lock(one)]
    if Completes.SHM in chosen.parts:
        made += _shm(template, asking, chosen.shm_size)
    if Completes.POD_NETWORKS in chosen.parts:
        made += _pod_networks(template, settings)
    return tuple(made)


def _ipc_lock(container: ContainerTemplate) -> Iterator[Completion]:
    """Yield IPC_LOCK for a container that may be root and neither has nor drops it."""
    has = container.privileged or {_LOCK, "CAP_IPC_LOCK", "ALL"} & {*container.added}
    declined = {_LOCK, "CAP_IPC_LOCK", "ALL"} & {*container.dropped}
    if not has and not declined and not container.own_user:
        path = (*container.path, "securityContext", "capabilities", "add", "-")
        yield Completion(path, _LOCK, f"{_LOCK} for container {container.name}")


def _shm(
    template: PodTemplate, asking: Mapping[FieldPath, ContainerTemplate], size: str
) -> Iterator[Completion]:
    """Yield a volume in memory, and its mounts at /dev/shm where containers have none."""
    bare = [
        container
        for container in asking.values()
        if SHM not in {place.rstrip("/") for _, place in container.mounts}
    ]
    if not bare:
        return
    if not any(volume.name == SHM_VOLUME for volume in template.volumes):
        source = {"medium": "Memory", "sizeLimit": size}
        volume = {"name": SHM_VOLUME, "emptyDir": source}
        yield Completion(("spec", "volumes", "-"), volume, f"{size} of memory for {SHM}")
    for container in bare:
        mount = {"name": SHM_VOLUME, "mountPath": SHM}
        path = (*container.path, "volumeMounts", "-")
        yield Completion(path, mount, f"{SHM} in container {container.name}")


def _pod_networks(template: PodTemplate, settings: AdmissionSettings) -> Iterator[Completion]:
    """Yield the annotation with a block for each card, if the pod has no or too few equal ones."""
    cards = held_shares(template, settings.counted)
    if template.host_network or not 0 < cards <= MOST_BLOCKS:
        return
    text = dict(template.annotations).get(POD_NETWORKS)
    if text is not None:
        blocks = _plain(text) if template.blocks else []
        copied = {json.dumps(block, sort_keys=True) for block in blocks}
        if len(copied) != 1 or len(blocks) >= cards or list(blocks[0]) != ["cniConf"]:
            return  # which of them to copy, or how, nobody but its author knows
        block = blocks[0]
    elif names_networks(template.annotations):
        return
    else:
        block = {"cniConf": {"name": settings.block}}
    what = f"{POD_NETWORKS} with a block for each of {cards} cards"
    yield Completion(BLOCKS, json.dumps([block] * cards), what)


def _plain(text: str) -> list[dict[str, object]]:
    """Return the entries of a text in strict JSON; none for another text, such as YAML."""
    try:
        blocks: list[dict[str, object]] = decoded(text)
    except Undecodable:
        return []
    return blocks
