"""Claim templates as people read them: YAML with a line on what to do with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kube_rdma.install.views import manifests

_NOTE = (
    "Apply the template. Copy resourceClaims, and resources.claims of the container, into your "
    "pods."
)


_SLOW = (
    "Where a node lacks one of these devices, the scheduler may search it for up to 10 seconds: "
    "see docs/boards.md."
)


def templates_text(objects: Iterable[dict[str, Any]], *, is_slow: bool = False) -> str:
    """All objects, behind the line; `is_slow`: a search without success may be long."""
    notes = "".join(f"# {note}\n" for note in (_NOTE, _SLOW)[: 2 if is_slow else 1])
    return f"{notes}{manifests(objects)}"
