"""Shows rates of RDMA devices to people and programs: `kube-rdma top nodes` and `top pods`.

A figure that is not known is a dash; 0 is 0. metrics/rules/throughput has the rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kube_rdma.lib.page import Block, Line, Page, PageRow, PageState, PageTable, Sentence
from kube_rdma.model.metrics import TrafficRate

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
    """Return bytes a second as bits in the unit of networks: ``97.5 Gb/s``."""
    if rate is None:
        return _NONE
    value, unit = rate * _BITS, 0
    while value >= _STEP - 0.5 and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    shown = f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"
    return f"{shown} {_UNITS[unit]}"


def nodes_page(
    rows: Sequence[TrafficRate], silent: Mapping[str, str], most: int | None = None
) -> Page:
    """Return a line for each port of the nodes' devices, `most` of them (None: all).

    The state of the others follows, then the nodes that did not answer.
    """
    shown = tuple(
        PageRow(
            (
                row.node,
                row.key.device,
                row.key.port,
                _STATES.get(row.now.state or 0, _NONE),
                f"{row.now.link / _GIGABIT:.10g}G" if row.now.link else _NONE,
                bits(row.received),
                bits(row.sent),
                _load(row),
                _errors(row),
            ),
            _state(row),
        )
        for row in rows[:most]
    )
    table = PageTable(_NODES, shown, _RIGHT_OF_NODES, _NODES.index("STATE"), cut=_CUT, ranked=True)
    return _page(table, _NO_NODE, rows[len(shown) :], silent)


def pods_page(
    rows: Sequence[TrafficRate], silent: Mapping[str, str], most: int | None = None
) -> Page:
    """Return a line for each device of a container, `most` of them (None: all)."""
    shown = tuple(
        PageRow(
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
        )
        for row in rows[:most]
    )
    table = PageTable(_PODS, shown, _RIGHT_OF_PODS, cut=_CUT, ranked=True)
    return _page(table, "No pod of these has an RDMA device.", rows[len(shown) :], silent)


def names(rows: Sequence[TrafficRate]) -> list[str]:
    """Return the names of the rows' nodes or pods, as `kube-rdma doctor` takes them.

    The order is that of the rows.
    """
    titles = (
        f"pod/{row.key.namespace}/{row.key.pod}" if row.key.pod else f"node/{row.node}"
        for row in rows
    )
    return list(dict.fromkeys(titles))


def top_document(rows: Sequence[TrafficRate], silent: Mapping[str, str]) -> dict[str, object]:
    """Return rows as JSON: bytes and errors a second, null where not known. Keys are stable."""
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


def _state(row: TrafficRate) -> PageState:
    """Return whether a row's port is active (healthy) or not; NONE if that is unknown."""
    if row.now.state is None:
        return PageState.NONE
    return PageState.HEALTHY if row.now.state == _ACTIVE else PageState.UNHEALTHY


def _further(rows: Sequence[TrafficRate]) -> Block:
    """Return a sentence that counts hidden rows, if any, and how many have bad ports or errors."""
    if not rows:
        return ()
    states = (row.now.state for row in rows if row.now.state not in (None, _ACTIVE))
    down = Counter(_STATES.get(state or 0, "in another state") for state in states)
    facts = [f"{count} {state}" for state, count in sorted(down.items())]
    errors = sum(bool(row.errors) for row in rows)
    facts += [f"{errors} with errors"] if errors else []
    kinds = f" ({', '.join(facts)})" if facts else ""
    return (Sentence(f"… and {len(rows)} more{kinds}; --all shows them.", "  "),)


def _page(
    table: PageTable, none: str, hidden: Sequence[TrafficRate], silent: Mapping[str, str]
) -> Page:
    unanswered = (
        Sentence(f"{node} did not answer: {why}", "  ") for node, why in sorted(silent.items())
    )
    return ((table if table.rows else Line(none)),), (*_further(hidden), *unanswered)


def _load(row: TrafficRate) -> str:
    return _NONE if row.load is None else f"{row.load:.0%}"


def _errors(row: TrafficRate) -> str:
    """Return the sum of all errors a second, and the name of the counter with most of them."""
    if not row.errors:
        return _NONE
    worst = max(row.errors, key=row.errors.__getitem__)
    return f"{sum(row.errors.values()):.3g}/s {worst}"
