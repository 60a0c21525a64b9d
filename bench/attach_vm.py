"""How long a pod waits for a NIC of a card: `attach` in the bare machine, which has cards.

One NIC of each kind, beside the same floor as in attach.py; attach_inside.py is what
runs there. Where the machine is emulated, so are the agent and its floor: of the times only the
ratio says something. No disk is written to, which makes the floor lower than on a node.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_base.errors import Unavailable
from kube_rdma_lab import accelerator, bare
from kube_rdma_lab.bare.run import accelerated

CHECKOUT = Path(__file__).parents[1]
INSIDE = "bench/attach_inside.py"
KINDS = {"macvlan_rxe": "test_macvlan_with_soft_roce", "function": "test_virtual_function"}

Rounds = list[dict[str, dict[str, Any]]]
Results = Mapping[str, bare.InnerResult]


def measure(context: Context) -> Iterator[Row]:
    """Boot the machine once, and read what its tests recorded."""
    del context  # no lab is needed
    tests = {kind: f"{INSIDE}::{test}" for kind, test in KINDS.items()}
    with tempfile.TemporaryDirectory(prefix="attach-vm-") as home:
        results = bare.run(CHECKOUT, tuple(tests.values()), Path(home))
        console = (Path(home) / "console.log").read_text(errors="replace")
    where = "emulated" if accelerated() == accelerator.EMULATION else "with KVM"
    for kind, test in tests.items():
        yield from attempt(kind, partial(_figures, kind, test, results, console, where))


def _figures(
    kind: str, test: str, results: Results, console: str, where: str
) -> tuple[Figure, ...]:
    return figures(kind, rounds(test, results.get(test), console), where)


def rounds(test: str, result: bare.InnerResult | None, console: str) -> Rounds:
    """What a test recorded; raise Unavailable with the reason where it did not.

    Of a test that did not begin, because its file cannot be imported, only the console tells.
    """
    if result is None or result.outcome is not bare.InnerOutcome.PASSED:
        cause = _cause(result.text if result else f"it did not begin\n{console}")
        raise Unavailable(f"{test} measured nothing in the bare machine: {cause}")
    recorded: Rounds = json.loads(result.facts["rounds"])
    return recorded


def _cause(text: str) -> str:
    """What pytest says of the error, else the first line."""
    lines = text.strip().splitlines() or ["it did not say why"]
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return errors[0] if errors else lines[0]


def figures(kind: str, recorded: Rounds, where: str) -> tuple[Figure, ...]:
    """The medians of one kind of NIC."""

    def middle(who: str, key: str) -> float:
        return float(median(each[who][key] for each in recorded))

    floor, inside = middle("floor", "ms"), middle("inside", "ms")
    gid = middle("floor", "gid_ms")
    waits = f"of these {gid:.0f} until the GID came" if gid else ""
    bare_cpu = middle("floor", "cpu_ms")
    return (
        Figure(f"{kind}_by_floor", inside / floor, "", "≤ 2", f"{where}, {len(recorded)} rounds"),
        Figure(f"{kind}_floor_p50_ms", floor, "ms", "", waits),
        Figure(f"{kind}_inside_p50_ms", inside, "ms"),
        Figure(f"{kind}_del_p50_ms", middle("inside", "del_ms"), "ms"),
        Figure(f"{kind}_cpu_ms", middle("inside", "cpu_ms"), "ms", "", f"bare {bare_cpu:.0f}"),
    )
