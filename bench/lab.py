"""How long the lab takes: a warm boot, and what each part took when it was built."""

from __future__ import annotations

import time

from bench.context import Context
from bench.figures import Figure
from kube_rdma_lab.build import store


def measure(context: Context) -> tuple[Figure, ...]:
    """Boot two nodes with everything built; show the cold build's parts as recorded."""
    begin = time.monotonic()
    context.boot()
    warm = Figure("warm_up_seconds", time.monotonic() - begin, "s", "≤ 90")
    ready = [
        Figure(event.step.replace(" ", "_") + "_seconds", event.seconds, "s")
        for event in context.steps
        if event.step.endswith(("Ready", "control plane"))
    ]
    parts = store.build_seconds()
    cold = Figure(
        "cold_build_seconds",
        sum(parts.values()),
        "s",
        "≤ 1200 with the boot",
        "of the parts whose build this cache recorded",
    )
    return (warm, *ready, cold, *(Figure(f"build_{k}_seconds", v, "s") for k, v in parts.items()))
