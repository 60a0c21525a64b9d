"""The list of violations that are known: a line for each object, below what will end them.

    ## Leave runAsUser out on OpenShift.
    constraint | Deployment/kube-rdma-controller | controller | openshift | vke nvidia ib

Cells are rule, object, container (or -), environments and presets. For environments stands `*`
where it is all, and `* but a b` where it is all others. A test compares the list with what the
judge sees: whoever ends a violation deletes its line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma_tools.judge.environment import Environment
from kube_rdma_tools.judge.violation import Violation

HEADING, _COMMENT, _CELLS = "## ", "#", 5
ALL, _BUT, _NONE, _BAR = "*", "but", "-", " | "


class Occurrence(Frozen, order=True):
    """A rule that an object breaks as one preset installs it in one environment."""

    rule: str
    where: str
    container: str
    environment: str
    preset: str


class ListError(ValueError):
    """A line of a list that says nothing, or what another line says."""


def occurrence(violation: Violation, environment: str, preset: str) -> Occurrence:
    """A violation without its words."""
    return Occurrence(violation.rule, violation.where, violation.container, environment, preset)


def read_list(text: str, environments: Mapping[str, Environment]) -> dict[Occurrence, str]:
    """What a list names, each with the heading above it. ListError for a line that is no use."""
    listed: dict[Occurrence, str] = {}
    heading = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(HEADING):
            heading = line.removeprefix(HEADING).strip()
        elif line.strip() and not line.startswith(_COMMENT):
            if not heading:
                raise ListError(f"line {number} stands below no heading")
            for entry in _read_line(line, number, environments):
                if entry in listed:
                    raise ListError(f"line {number} says again what stands above: {entry}")
                listed[entry] = heading
    return listed


def _read_line(
    line: str, number: int, environments: Mapping[str, Environment]
) -> Iterator[Occurrence]:
    cells = [cell.strip() for cell in line.split(_BAR.strip())]
    if len(cells) != _CELLS:
        raise ListError(f"line {number} has {len(cells)} cells, not {_CELLS}")
    rule, where, container, places, presets = cells
    names = places.split()
    if names[:1] == [ALL]:
        names = [name for name in environments if name not in names[2:]]
    if unknown := [name for name in names if name not in environments]:
        raise ListError(f"line {number} names no environment: {', '.join(unknown)}")
    for name in names:
        for preset in presets.split():
            yield Occurrence(rule, where, "" if container == _NONE else container, name, preset)


def lines(entries: Iterable[Occurrence], environments: Sequence[str]) -> Iterator[str]:
    """The lines of a list for these entries, as few as there can be."""
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
    """These environments of all, by those that are left out where these are fewer."""
    others = [name for name in environments if name not in names]
    if not others:
        return ALL
    if len(others) < len(names):
        return f"{ALL} {_BUT} {' '.join(others)}"
    return " ".join(names)
