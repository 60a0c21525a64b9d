"""Violations as lines, for tests and for a comparison of two checkouts.

    constraint | Deployment/kube-rdma-controller | controller | openshift | vke nvidia ib

Cells are rule, object, container (or -), environments and presets. `*` stands for all environments,
and `* but a b` for all except a and b.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from kube_base.frozen import Frozen
from kube_rdma_tools.judge.violation import Violation

ALL, _BUT, _NONE, _BAR = "*", "but", "-", " | "


class Occurrence(Frozen, order=True):
    """The place of a violation: rule and object, installed by a preset in an environment."""

    rule: str
    where: str
    container: str
    environment: str
    preset: str


def occurrence(violation: Violation, environment: str, preset: str) -> Occurrence:
    """Return the place of a violation, without its sentences."""
    return Occurrence(violation.rule, violation.where, violation.container, environment, preset)


def lines(entries: Iterable[Occurrence], environments: Sequence[str]) -> Iterator[str]:
    """Yield a line for each rule, object, container and set of presets.

    It names all environments in which just these presets have the violation.
    """
    presets: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(dict)
    for entry in sorted(entries):
        key = (entry.rule, entry.where, entry.container)
        presets[key].setdefault(entry.environment, []).append(entry.preset)
    for (rule, where, container), by_environment in presets.items():
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in environments:
            if name in by_environment:
                alike[tuple(by_environment[name])].append(name)
        for names, places in alike.items():
            cells = (rule, where, container or _NONE, shown_places(places, environments))
            yield _BAR.join((*cells, " ".join(names)))


def shown_places(names: Collection[str], environments: Collection[str]) -> str:
    """Return the environments' names as text; `*` for all, `* but` the others if they are fewer."""
    others = [name for name in environments if name not in names]
    if not others:
        return ALL
    if len(others) < len(names):
        return f"{ALL} {_BUT} {' '.join(others)}"
    return " ".join(names)
