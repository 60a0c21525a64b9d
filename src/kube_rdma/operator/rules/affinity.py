"""Whether a node is one of those that a policy's nodeAffinity allows, as the scheduler reads it.

A driver's DaemonSet has no affinity of its own: one that becomes narrower would end drivers under
pods. So the operator asks here where a driver belongs (operator/rules/placement).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_WHOLE = re.compile(r"[-+]?[0-9]{1,19}")
_NAME = "metadata.name"  # the only field of a node that can be asked for


def _number(text: str | None) -> int | None:
    """A whole number as Go's ParseInt takes it, else None."""
    return int(text) if text and _WHOLE.fullmatch(text) else None


def _compares(value: str | None, values: Sequence[str], sign: int) -> bool:
    mine, theirs = _number(value), _number(values[0] if len(values) == 1 else None)
    return mine is not None and theirs is not None and (mine - theirs) * sign > 0


OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compares(value, values, 1),
    "Lt": lambda value, values: _compares(value, values, -1),
}


def allows(affinity: Mapping[str, Any] | None, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node may have what a policy brings; without what is required all nodes may.

    One term has to hold, with all of its expressions; a term without any holds for no node.
    """
    required = (affinity or {}).get(REQUIRED)
    if required is None:
        return True
    return any(_holds(term, name, labels) for term in required.get("nodeSelectorTerms", ()))


def _holds(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    asked = [
        *((one, labels.get(one["key"])) for one in term.get("matchExpressions") or ()),
        *((one, name if one["key"] == _NAME else None) for one in term.get("matchFields") or ()),
    ]
    return bool(asked) and all(
        OPERATORS[one["operator"]](value, one.get("values") or ()) for one, value in asked
    )
