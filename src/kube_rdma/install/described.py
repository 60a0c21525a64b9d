"""The objects of an installation as its files describe them; read once in a process, when asked.

install/rules/objects/*.yaml ─► install/documents/blueprints ─► the installation, the operator's
agents
"""

from __future__ import annotations

from functools import cache

from kube_rdma.model.install.blueprint import Blueprint


@cache
def described(part: str) -> tuple[Blueprint, ...]:
    """The blueprints of a part, in the order of its file."""
    from importlib import resources  # late: every controller can be an operator, few are

    from kube_rdma.install import rules as install
    from kube_rdma.install.documents import blueprints

    file = resources.files(install) / "objects" / f"{part}.yaml"
    return blueprints.read(file.read_text(encoding="utf-8"))
