"""What a lab costs: boot, demo, rest and pods; quiet, and with a busy loop on every processor.

The second boot, beside the loop, is the machine that most users have: somebody else works there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from bench import lab_rest
from bench.context import Context, own_lab
from bench.figures import Figure, Row, attempt
from kube_rdma_lab.build import store
from kube_rdma_lab.demo.main import demonstrate
from kube_rdma_lab.printer import Printer
from kube_rdma_lab.progress import Event, Phase

NAME, BUSY = "bench", "busy_"


def measure(context: Context) -> Iterator[Row]:
    """Boot two nodes twice with everything built; show the cold build's parts as recorded."""
    quiet: list[Figure] = []
    yield from attempt("quiet", lambda: _kept(quiet, _life(context)))
    yield from attempt("busy", lambda: _busy(context, quiet))
    yield from _cold()


def _kept(figures: list[Figure], measured: Iterable[Figure]) -> Iterator[Figure]:
    """Give what is measured, and keep it for ratios."""
    for figure in measured:
        figures.append(figure)
        yield figure


def _busy(context: Context, quiet: list[Figure]) -> Iterator[Figure]:
    """The same beside the loop."""
    beside: list[Figure] = []
    with lab_rest.busy_loop():
        for figure in _kept(beside, _life(context)):
            yield replace(figure, key=BUSY + figure.key, goal="")
    yield from _ratios(quiet, beside)


def _life(context: Context) -> Iterator[Figure]:
    """Boot a lab, show the demo on it, let it rest, start pods."""
    begin = time.monotonic()
    steps: list[Event] = []
    with own_lab(NAME, "two-nodes", steps.append) as lab:
        yield Figure("warm_up_seconds", time.monotonic() - begin, "s", "≤ 90")
        for event in steps:
            is_over = event.phase in {Phase.DONE, Phase.CACHED}
            if is_over and event.step.endswith(("Ready", "control plane")):
                yield Figure(event.step.replace(" ", "_") + "_seconds", event.seconds, "s")
        with Printer() as report:
            demonstrate(lab, report)
        yield Figure("demo_seconds", time.monotonic() - begin, "s", "≤ 100", "with the boot")
        yield from lab_rest.measure(lab, context)


def _ratios(quiet: list[Figure], busy: list[Figure]) -> tuple[Figure, ...]:
    """Return how many times as long each part takes beside the loop."""
    before = {figure.key: figure.value for figure in quiet if figure.unit == "s"}
    return tuple(
        Figure(f"{BUSY}to_quiet_{each.key.removesuffix('_seconds')}", each.value / value, "×")
        for each in busy
        if (value := before.get(each.key))
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
