"""The evidence that the repository keeps: a file of rights, with the day of the last recording."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from kube_rdma_tools.rights.right import Right
from kube_rdma_tools.rights.used import Evidence

FILE = Path(__file__).parent / "recorded.json"
NAME = f"src/kube_rdma_tools/rights/{FILE.name}"
_LIST = re.compile(r"\[([^\[\]]*)\]")  # the verbs of a resource, in one line


def read(text: str) -> Evidence:
    """Return the evidence in the text of the file of recorded rights."""
    document = json.loads(text)
    return Evidence(rights(document["used"]), rights(document["refused"]))


def write(evidence: Evidence, day: str) -> str:
    """Return the text of the file of recorded rights, with verbs by role and resource."""
    document = {
        "recorded": day,
        "used": _by_role(evidence.used),
        "refused": _by_role(evidence.refused),
    }
    text = json.dumps(document, indent=1)
    return _LIST.sub(lambda match: f"[{' '.join(match[1].split())}]", text) + "\n"


def merged(before: Evidence, runs: Evidence, granted: Collection[Right]) -> Evidence:
    """Return recorded and new evidence together, without used rights that are no longer granted."""
    used = (before.used | runs.used) & frozenset(granted)
    return Evidence(used, before.refused | runs.refused)


def _by_role(rights: Collection[Right]) -> Mapping[str, Any]:
    tree: dict[str, dict[str, list[str]]] = {}
    for right in sorted(rights):
        tree.setdefault(right.role, {}).setdefault(right.resource, []).append(right.verb)
    return tree


def rights(tree: Mapping[str, Mapping[str, Collection[str]]]) -> frozenset[Right]:
    """Return the rights in a tree of verbs by role and resource."""
    return frozenset(
        Right(role, resource, verb)
        for role, resources in tree.items()
        for resource, verbs in resources.items()
        for verb in verbs
    )
