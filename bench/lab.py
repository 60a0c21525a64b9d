"""What a lab costs: boot, demo, rest and pods; quiet, and with a busy loop on every processor.

The second boot, beside the loop, is the machine that most users have: somebody else works there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from bench import rest
from bench.context import Context
from bench.figures import Figure
from kube_rdma_lab.build import store
from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.printer import Printer

BUSY = "busy_"


def measure(context: Context) -> tuple[Figure, ...]:
    """Boot two nodes twice with everything built; show the cold build's parts as recorded."""
    quiet = _life(context)
    with rest.busy_loop():
        beside = _life(context)
    busy = (replace(figure, key=BUSY + figure.key, goal="") for figure in beside)
    return (*quiet, *busy, *_ratios(quiet, beside), *_cold())


def _life(context: Context) -> tuple[Figure, ...]:
    """Boot a lab, show the demo on it, let it rest, start pods."""
    begin = time.monotonic()
    context.steps.clear()
    lab = context.boot()
    up = Figure("warm_up_seconds", time.monotonic() - begin, "s", "≤ 90")
    ready = [
        Figure(event.step.replace(" ", "_") + "_seconds", event.seconds, "s")
        for event in context.steps
        if event.step.endswith(("Ready", "control plane"))
    ]
    with Printer() as report:
        demonstrate(lab, report)
    demo = Figure("demo_seconds", time.monotonic() - begin, "s", "≤ 100", "with the boot")
    return (up, *ready, demo, *rest.measure(lab))


def _ratios(quiet: Iterable[Figure], busy: Iterable[Figure]) -> tuple[Figure, ...]:
    """Return how many times as long each part takes beside the loop."""
    return tuple(
        Figure(
            f"{BUSY}to_quiet_{first.key.removesuffix('_seconds')}", second.value / first.value, "×"
        )
        for first, second in zip(quiet, busy, strict=True)
        if first.unit == "s" and first.value > 0
    )


def _cold() -> tuple[Figure, ...]:
    """Return what each part took when this cache first built it."""
    parts = store.build_seconds()
    cold = Figure(
        "cold_build_seconds",
        sum(parts.values()),
        "s",
        "≤ 1200 with the boot",
        "of the parts whose build this cache recorded",
    )
    return (cold, *(Figure(f"build_{k}_seconds", v, "s") for k, v in parts.items()))
