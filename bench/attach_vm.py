"""How long a pod waits for a NIC of a card: `attach` in the bare machine, which has cards.

One NIC of each kind, beside the same floor as in attach.py; attach_inside.py is what
runs there. Where the machine is emulated, so are the agent and its floor: of the times only the
ratio says something. No disk is written to, which makes the floor lower than on a node.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.context import Context
from bench.figures import Figure
from kube_rdma.model.errors import Unavailable
from kube_rdma_lab import accelerator, bare
from kube_rdma_lab.bare.run import accelerated

CHECKOUT = Path(__file__).parents[1]
INSIDE = "bench/attach_inside.py"
KINDS = {"macvlan_rxe": "test_macvlan_with_soft_roce", "function": "test_virtual_function"}

Rounds = list[dict[str, dict[str, Any]]]


def measure(context: Context) -> tuple[Figure, ...]:
    """Boot the machine once, and read what its tests recorded."""
    del context  # no lab is needed
    tests = {kind: f"{INSIDE}::{test}" for kind, test in KINDS.items()}
    with tempfile.TemporaryDirectory(prefix="attach-vm-") as home:
        results = bare.run(CHECKOUT, tuple(tests.values()), Path(home))
    where = "emulated" if accelerated() == accelerator.EMULATION else "with KVM"
    return tuple(
        figure
        for kind, test in tests.items()
        for figure in figures(kind, rounds(test, results.get(test)), where)
    )


def rounds(test: str, result: bare.InnerResult | None) -> Rounds:
    """What a test recorded; raise Unavailable with the reason where it did not."""
    if result is None or result.outcome is not bare.InnerOutcome.PASSED:
        text = result.text.strip() if result else "it did not begin"
        raise Unavailable(f"{test} measured nothing in the bare machine:\n{text}")
    recorded: Rounds = json.loads(result.facts["rounds"])
    return recorded


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
