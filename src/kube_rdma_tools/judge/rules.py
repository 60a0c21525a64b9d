"""All rules of the judge by the names that lists and tests use.

The first line of a rule's docstring is printed: it says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from kube_base.frozen import replace
from kube_rdma.model.install import Json
from kube_rdma_tools.judge import (
    admission,
    labels,
    names,
    node_paths,
    references,
    scheduling,
    versions,
)
from kube_rdma_tools.judge.environment import Environment
from kube_rdma_tools.judge.violation import Violation

Rule: TypeAlias = Callable[[Sequence[Json], Environment], Iterator[Violation]]

RULES: Mapping[str, Rule] = {
    "pod-security": admission.pod_security,
    "constraint": admission.constraint,
    "priority-quota": admission.priority_quota,
    "nowhere": scheduling.nowhere,
    "unfit-node": scheduling.unfit_node,
    "missed-node": scheduling.missed_node,
    "selinux-type": node_paths.selinux_type,
    "selinux-reach": node_paths.selinux_reach,
    "read-only-folder": node_paths.read_only_folder,
    "other-folder": node_paths.other_folder,
    "unserved-kind": versions.unserved_kind,
    "unknown-field": versions.unknown_field,
    "taken-name": names.taken_name,
    "taken-definition": names.taken_definition,
    "ambiguous-plural": names.ambiguous_plural,
    "starts-others": names.starts_others,
    "unlabelled": labels.unlabelled,
    "selected-by-version": labels.selected_by_version,
    "missing-reference": references.missing_reference,
    "late-object": references.late_object,
    "malformed-object": references.malformed_object,
}


def judge(objects: Sequence[Json], environment: Environment) -> tuple[Violation, ...]:
    """Return all violations of an installation in an environment, by rule in the order of `RULES`.

    The violations of a rule are sorted, each only once.
    """
    return tuple(
        replace(violation, rule=name)
        for name, rule in RULES.items()
        for violation in sorted(set(rule(objects, environment)))
    )


def meaning(name: str) -> str:
    """Return the sentence that explains a rule, which is the first line of its docstring."""
    return (RULES[name].__doc__ or "").partition("\n")[0].rstrip(".")
