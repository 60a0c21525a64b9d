"""Claim templates as people read them: YAML with a line on what to do with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kube_rdma.views.install import manifests

_NOTE = (
    "Apply the template. Copy resourceClaims, and resources.claims of the container, into your "
    "pods."
)


def templates_text(objects: Iterable[dict[str, Any]]) -> str:
    """All objects, behind the line."""
    return f"# {_NOTE}\n{manifests(objects)}"
