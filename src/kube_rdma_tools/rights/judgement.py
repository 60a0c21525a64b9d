"""Compares granted rights with used ones: findings, each a sentence that tells what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kube_rdma_tools.rights.right import Right
from kube_rdma_tools.rights.used import Evidence

RECORD = (
    "run the lab's tests that use it, then `ARGS=--record make rights`, and commit {file}; "
    "or take the right away"
)
# The roles that each account has.
_ROLES_OF = {
    "agent": ("ClusterRole agent", "Role agent"),
    "controller": (
        "ClusterRole controller",
        "Role controller",
        "ClusterRole admission",
        "Role admission",
        "ClusterRole bandwidth-check",
    ),
    "retirement": ("ClusterRole retirement", "Role retirement", "Role retirement-drivers"),
}
_ROLES_OF["operator"] = _ROLES_OF["controller"]


def findings(
    granted: Collection[Right],
    evidence: Evidence,
    exceptions: Mapping[Right, str],
    refusals: Mapping[Right, str],
    file: str,
) -> Iterator[str]:
    """Yield a sentence for each right that is granted but unused, or asked for but not granted.

    `exceptions` are rights that no run of the lab can show or has shown yet, `refusals` requests
    that should be refused. An entry of either that is not needed is reported too.
    """
    for right in sorted(set(granted) - evidence.used - exceptions.keys()):
        yield f"{right} is granted, and no test used it: {RECORD.format(file=file)}"
    for right in sorted(exceptions.keys() & evidence.used):
        yield f"{right} was used: take it out of the exceptions (rights/exceptions.py)"
    for right in sorted(exceptions.keys() - set(granted)):
        yield f"{right} is granted no more: take it out of the exceptions (rights/exceptions.py)"
    refused = {right for right in evidence.refused if not _is_granted(right, granted)}
    for right in sorted(refused - refusals.keys()):
        yield f"{right} was asked for and refused: grant it, or ask for it no more"
    for right in sorted(refusals.keys() - refused):
        yield f"{right} was not refused: take it out of the refusals (rights/exceptions.py)"


def _is_granted(asked: Right, granted: Collection[Right]) -> bool:
    """Decide whether a role of the account grants a right that was refused to it."""
    roles = _ROLES_OF[asked.role]
    return any(Right(role, asked.resource, asked.verb) in granted for role in roles)
