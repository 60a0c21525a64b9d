"""The file of all runs: a line of JSON for each, appended when the run is over.

A run is drawn again from its seed, its size and its faults; `tree` is the commit that it ran from.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from chaos.run import Outcome
from chaos.schedule import Begin, Size, Step
from kube_base.frozen import Frozen

RUNS = Path(__file__).with_name("runs.jsonl")


class Facts(Frozen):
    """What a line says besides: the commit, the lab, the faults that were chosen, the time."""

    tree: str
    topology: str
    choice: tuple[str, ...]
    seconds: float


def line(seed: int, size: Size, steps: tuple[Step, ...], outcome: Outcome, facts: Facts) -> str:
    """A run as it stands in the file."""
    begun = [step for step in steps if isinstance(step, Begin)]
    document = {
        "seed": seed,
        "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "tree": facts.tree,
        "topology": facts.topology,
        "pods": size.pods,
        "choice": list(facts.choice),
        "faults": [f"{step.fault.value} {step.target}".rstrip() for step in begun],
        "outcome": "clean" if outcome.is_clean else "not clean",
        "ready": outcome.ready,
        "transfers": outcome.talks,
        "refused": list(outcome.refused),
        "wrong": [*map(str, outcome.under_load), *map(str, outcome.at_rest)],
        "stuck": outcome.stuck[:2000],
        "seconds": round(facts.seconds),
    }
    return json.dumps({key: value for key, value in document.items() if value not in ("", [])})
