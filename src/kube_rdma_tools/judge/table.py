"""The judge's page: a matrix of clusters and presets, then the violations of each rule.

An object's violations of a rule are shown together, for all clusters and presets that have them.
Objects with the same text share it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from kube_base.frozen import Frozen
from kube_rdma.lib.page import aligned, widths, wrapped
from kube_rdma_tools.judge.environment import Environment
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.listing import ALL, shown_places
from kube_rdma_tools.judge.rules import RULES, meaning
from kube_rdma_tools.judge.violation import Violation

_WIDTH, _SHOWN = 100, 3
POD = "spec.template.spec."
_NOTHING, _BELOW, _DEEPER = "·", "  ", "      "


class JudgedPreset(Frozen):
    """A preset in an environment, with the violations of its installation."""

    environment: Environment
    preset: str
    violations: tuple[Violation, ...]


def table(judged: Sequence[JudgedPreset]) -> Iterator[str]:
    """Yield all lines of the judge's page: the matrix, violations by rule, and their number."""
    yield from _matrix(judged)
    rules = _by_rule(judged)
    for name, objects in rules.items():
        yield ""
        yield f"{name} · {meaning(name)}"
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for (where, container), entries in objects.items():
            alike[tuple(_object(entries))].append(f"{where} {container}".rstrip())
        for text, broken in alike.items():
            yield from (f"{_BELOW}{each}" for each in broken)
            yield from text
    yield ""
    yield _total(judged, {name: len(objects) for name, objects in rules.items()})


def _matrix(judged: Sequence[JudgedPreset]) -> Iterator[str]:
    """Yield the lines of a table that counts violations by environment and preset."""
    presets = list(dict.fromkeys(entry.preset for entry in judged))
    titles: dict[str, tuple[str, dict[str, int]]] = {}
    for entry in judged:
        broken = {(seen.rule, seen.where, seen.container) for seen in entry.violations}
        row = titles.setdefault(entry.environment.name, (entry.environment.title, {}))
        row[1][entry.preset] = len(broken)
    rows = [["environment", *presets, ""]]
    for name, (title, numbers) in titles.items():
        cells = [str(numbers[preset] or _NOTHING) for preset in presets]
        rows.append([name, *cells, title])
    columns = widths(rows)
    yield from (aligned(row, columns, range(1, len(presets) + 1)) for row in rows)


def _by_rule(
    judged: Sequence[JudgedPreset],
) -> Mapping[str, Mapping[tuple[str, str], list[tuple[JudgedPreset, Violation]]]]:
    """Group the violations by rule and container or object, in the order of the rules."""
    broken: dict[str, dict[tuple[str, str], list[tuple[JudgedPreset, Violation]]]] = {}
    for name in RULES:
        objects = defaultdict(list)
        for entry in judged:
            for seen in entry.violations:
                if seen.rule == name:
                    objects[seen.where, seen.container].append((entry, seen))
        if objects:
            broken[name] = objects
    return broken


def _object(entries: Sequence[tuple[JudgedPreset, Violation]]) -> Iterator[str]:
    """Yield lines on an object's violations of a rule: where they occur, problems and remedies."""
    environments = tuple(dict.fromkeys(entry.environment.name for entry, _ in entries))
    presets = tuple(dict.fromkeys(entry.preset for entry, _ in entries))
    places = shown_places(environments, ENVIRONMENTS).replace(ALL, "all environments")
    yield from _set(f"in {places} (preset{'s' * (len(presets) > 1)} {' '.join(presets)})")
    kinds: dict[tuple[str, str], Violation] = {}
    for _, seen in entries:
        kinds.setdefault((seen.field, seen.remedy), seen)
    shown = tuple(kinds.values())[:_SHOWN]
    for seen in shown:
        yield from _set(f"{_short(seen)}: {seen.problem}")
    if len(kinds) > _SHOWN:
        yield f"{_DEEPER}and {len(kinds) - _SHOWN} more like these"
    for remedy in dict.fromkeys(seen.remedy for seen in shown):
        yield from _set(f"→ {remedy}")


def _short(violation: Violation) -> str:
    """Return a violation's field, relative to its container or the pod's spec."""
    return violation.field.rpartition(f"[{violation.container}].")[2].removeprefix(POD)


def _set(text: str) -> list[str]:
    return wrapped(f"{_DEEPER}{text}", _WIDTH, f"{_DEEPER}  ")


def _total(judged: Sequence[JudgedPreset], counts: Mapping[str, int]) -> str:
    environments = {entry.environment.name for entry in judged}
    presets = {entry.preset for entry in judged}
    ranked = ", ".join(f"{count} {name}" for name, count in Counter(counts).most_common())
    return (
        f"Presets: {len(presets)}, environments: {len(environments)}, "
        f"violations: {sum(counts.values())}{f' ({ranked})' if ranked else ''}"
    )
