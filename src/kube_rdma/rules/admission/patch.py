"""Completions as a JSON patch (RFC 6902), which an admission webhook answers with.

Last of the rules of admission. A completion names the value alone; the objects and lists around it
are made where the pod has none.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from kube_rdma.model.admission.facts import Completion
from kube_rdma.model.finding import FieldPath
from kube_rdma.model.install.blueprint import Json

END = "-"  # of a list


def operations(pod: Json, completions: Sequence[Completion]) -> list[Json]:
    """The patch by which all of them come into a pod, which stays as it is."""
    made = copy.deepcopy(pod) if completions else pod
    return [_operation(made, one.path, one.value) for one in completions]


def pointer(path: FieldPath) -> str:
    """A path as RFC 6901 writes it."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "".join(f"/{step}" for step in steps)


def _operation(pod: Json, path: FieldPath, value: object) -> Json:
    """What adds the value, at the first place on its path that the pod does not have; done too."""
    place: Any = pod
    for number, step in enumerate(path[:-1]):
        inner = place.get(step) if isinstance(place, dict) else place[step]
        if inner is None:
            return _put(place, path[: number + 1], _around(path[number + 1 :], value))
        place = inner
    return _put(place, path, value)


def _put(place: Any, path: FieldPath, value: object) -> Json:
    if path[-1] == END:
        place.append(value)
    else:
        place[path[-1]] = value
    return {"op": "add", "path": pointer(path), "value": copy.deepcopy(value)}


def _around(path: FieldPath, value: object) -> object:
    """The value in the objects and lists that lead to it."""
    for step in reversed(path):
        value = [value] if step == END else {step: value}
    return value
