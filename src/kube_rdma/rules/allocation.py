"""Answers the kubelet's Allocate: what the container that holds these shares gets, or why nothing.

Pure and repeatable: the kubelet asks again for shares that it gave already (init containers,
restarts), and gets the same Grant. A refusal is final for the pod, which fails at admission.
"""

from __future__ import annotations

from collections.abc import Sequence

from kube_rdma.model.errors import Refused
from kube_rdma.model.pool import Grant, Pool, ShareId

_NAMED = 3  # ids or cards that a sentence lists; a person needs no thousand


def allocate(pool: Pool, wanted: Sequence[ShareId]) -> Grant:
    """The grant of the shares `wanted`, in their order and each once.

    Raise Refused for no share, for ids that the pool does not have and for shares that are
    unhealthy, with the reasons of the cards.
    """
    if not wanted:
        raise _refused(pool, "the request names no share", f"Ask for at least 1 {pool.resource}")
    health = {share.id: share.healthy for share in pool.shares}
    unknown = [name for name in wanted if name not in health]
    if unknown:
        problem = f"none of its {len(health)} shares is named {_listed(unknown)}"
        raise _refused(pool, problem, "Create the pod again, the kubelet then picks present shares")
    if not all(health[name] for name in wanted):
        reasons = [f"{v.device.name} ({', '.join(v.reasons)})" for v in pool.unusable]
        problem = f"none of its cards can be used: {_listed(reasons)}"
        raise _refused(pool, problem, "Repair a card, then create the pod again")
    return Grant(pool.resource, tuple(dict.fromkeys(wanted)), pool.char_paths)


def _refused(pool: Pool, problem: str, remedy: str) -> Refused:
    return Refused(problem, remedy=remedy, where=pool.resource)


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
