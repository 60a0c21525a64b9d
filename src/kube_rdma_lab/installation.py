"""Makes the objects of an installation with the lab's image, which its nodes have already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kube_rdma.install import installation
from kube_rdma.lib.text.document import Document
from kube_rdma_lab.build.product import IMAGE


def objects(
    layers: Sequence[Document], preset: str = "", part: str = ""
) -> tuple[dict[str, Any], ...]:
    """Return the objects of `kube-rdma render`, with the lab's image unless a layer has another."""
    image = installation.assignment(f"image.repository={IMAGE}")
    return installation.objects([image, *layers], preset, part)
