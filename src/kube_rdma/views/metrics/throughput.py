"""Rates of RDMA devices for people and programs: `kube-rdma top nodes` and `top pods`.

A figure that is not known is a dash; 0 is 0. rules/metrics/throughput has the rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kube_rdma.model.metrics.throughput import TrafficRate
from kube_rdma.views.text import aligned, fitted, widths, wrapped

_NONE = "-"
_UNITS = ("b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s")
_STEP = 1000.0
_BITS = 8
_GIGABIT = 125_000_000.0  # bytes
_STATES = {1: "down", 2: "init", 3: "armed", 4: "active", 5: "deferred"}  # enum ib_port_state
_NODES = ("NODE", "DEVICE", "PORT", "STATE", "LINK", "RECEIVED", "SENT", "LOAD", "ERRORS")
_PODS = ("POD", "CONTAINER", "NODE", "DEVICE", "RECEIVED", "SENT", "LOAD", "ERRORS")
_ACTIVE = 4
_CUT = ("ERRORS", "CONTAINER", "NODE", "POD")
_RIGHT_OF_NODES, _RIGHT_OF_PODS = (2, 4, 5, 6, 7), (4, 5, 6)
_NO_NODE = "No agent reports ports under these --metrics-names, or no node has an RDMA device."
_SHARED = "shared"


def bits(rate: float | None) -> str:
    """Bytes a second as people in networks say them: ``97.5 Gb/s``."""
    if rate is None:
        return _NONE
    value, unit = rate * _BITS, 0
    while value >= _STEP - 0.5 and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    shown = f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"
    return f"{shown} {_UNITS[unit]}"


def top_nodes(
    rows: Sequence[TrafficRate],
    silent: Mapping[str, str],
    width: int = 100,
    most: int | None = None,
) -> str:
    """A line for each port of the nodes' devices, `most` of them (None: all).

    Then how the others are, and the nodes that did not answer.
    """
    lines = [
        (
            row.node,
            row.key.device,
            row.key.port,
            _STATES.get(row.now.state or 0, _NONE),
            _link(row),
            bits(row.received),
            bits(row.sent),
            _load(row),
            _errors(row),
        )
        for row in rows[:most]
    ]
    notes = [*_further(rows[len(lines) :], width), *_silent(silent, width)]
    return _page(_fitted(_NODES, lines, width), _RIGHT_OF_NODES, _NO_NODE, notes)


def top_pods(
    rows: Sequence[TrafficRate],
    silent: Mapping[str, str],
    width: int = 100,
    most: int | None = None,
) -> str:
    """A line for each device of a container, `most` of them (None: all)."""
    lines = [
        (
            f"{row.key.namespace}/{row.key.pod}",
            row.key.container or _NONE,
            row.node,
            row.key.device,
            _SHARED if row.now.shared else bits(row.received),
            _SHARED if row.now.shared else bits(row.sent),
            _load(row),
            _errors(row),
        )
        for row in rows[:most]
    ]
    notes = [*_further(rows[len(lines) :], width), *_silent(silent, width)]
    shown = _fitted(_PODS, lines, width)
    return _page(shown, _RIGHT_OF_PODS, "No pod of these has an RDMA device.", notes)


def top_document(rows: Sequence[TrafficRate], silent: Mapping[str, str]) -> dict[str, object]:
    """The same as JSON values: bytes and errors a second, null where not known. Keys are stable."""
    return {
        "rows": [
            {
                "node": row.node,
                "namespace": row.key.namespace or None,
                "pod": row.key.pod or None,
                "container": row.key.container or None,
                "device": row.key.device,
                "port": int(row.key.port) if row.key.port.isdecimal() else None,
                "state": _STATES.get(row.now.state or 0),
                "shared": row.now.shared,
                "linkBytesPerSecond": row.now.link,
                "receivedBytesPerSecond": row.received,
                "sentBytesPerSecond": row.sent,
                "load": row.load,
                "errorsPerSecond": dict(row.errors),
            }
            for row in rows
        ],
        "silentNodes": dict(silent),
    }


def _fitted(
    head: Sequence[str], lines: Sequence[Sequence[str]], width: int
) -> Sequence[Sequence[str]]:
    """The table; where it is too wide the longest names are cut, those of counters first."""
    narrowed = [head.index(title) for title in _CUT if title in head]
    return fitted([head, *lines], width, narrowed)


def _further(rows: Sequence[TrafficRate], width: int) -> list[str]:
    """How many rows are not shown, and what of them a person would look for."""
    if not rows:
        return []
    states = (row.now.state for row in rows if row.now.state not in (None, _ACTIVE))
    down = Counter(_STATES.get(state or 0, "in another state") for state in states)
    facts = [f"{count} {state}" for state, count in sorted(down.items())]
    errors = sum(bool(row.errors) for row in rows)
    facts += [f"{errors} with errors"] if errors else []
    kinds = f" ({', '.join(facts)})" if facts else ""
    return wrapped(f"… and {len(rows)} more{kinds}; --all shows them.", width, "  ")


def _page(
    table: Sequence[Sequence[str]], right: Sequence[int], none: str, notes: Sequence[str]
) -> str:
    columns = widths(table)
    shown = [aligned(line, columns, right) for line in table] if len(table) > 1 else [none]
    return "\n".join([*shown, *(("", *notes) if notes else ())])


def _link(row: TrafficRate) -> str:
    return f"{row.now.link / _GIGABIT:.10g}G" if row.now.link else _NONE


def _load(row: TrafficRate) -> str:
    return _NONE if row.load is None else f"{row.load:.0%}"


def _errors(row: TrafficRate) -> str:
    """All errors a second, and the counter that most of them are in."""
    if not row.errors:
        return _NONE
    worst = max(row.errors, key=row.errors.__getitem__)
    return f"{sum(row.errors.values()):.3g}/s {worst}"


def _silent(silent: Mapping[str, str], width: int) -> list[str]:
    return [
        line
        for node, why in sorted(silent.items())
        for line in wrapped(f"{node} did not answer: {why}", width, "  ")
    ]
