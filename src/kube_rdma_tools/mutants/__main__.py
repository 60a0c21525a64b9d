"""`python -m kube_rdma_tools.mutants`: draws faults, tries them, prints a row for each."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import msgspec

from kube_rdma_lab.build.program import run
from kube_rdma_tools.mutants.places import ROOMS, files
from kube_rdma_tools.mutants.run import MutationOutcome, draw, outcomes

CHECKOUT = Path(__file__).resolve().parents[3]


def row(outcome: MutationOutcome) -> str:
    """Return a fault and the test that noticed it, as two lines for people."""
    fault = outcome.drawn.fault
    place = f"{outcome.drawn.file}:{fault.line}"
    change = f"{_short(fault.before)} → {_short(fault.after)}"
    seen = f"noticed by {outcome.noticed_by}" if outcome.noticed_by else "NOT NOTICED"
    return f"{place}  {change}\n    {seen}"


def record(outcome: MutationOutcome, seed: int) -> bytes:
    """Return a fault and the test that noticed it, as a line of JSON for bench/results."""
    fault = outcome.drawn.fault
    fields = {
        "seed": seed,
        "file": str(outcome.drawn.file),
        "line": fault.line,
        "before": fault.before,
        "after": fault.after,
        "noticed_by": outcome.noticed_by,
    }
    return msgspec.json.encode(fields) + b"\n"


def _short(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


@click.command()
@click.option("--seed", default=1, show_default=True, help="Number that chooses the faults.")
@click.option("--count", default=20, show_default=True, help="Number of faults.")
@click.option(
    "--rooms", default=",".join(ROOMS), show_default=True, help="Where the faults are, by commas."
)
@click.option("--workers", default=2, show_default=True, help="Processes of pytest.")
@click.option(
    "--results", type=click.Path(path_type=Path), help="File that gets a line of JSON per fault."
)
def main(seed: int, count: int, rooms: str, workers: int, results: Path | None) -> None:
    """Put COUNT single faults into a copy of the source and tell which ones the tests notice."""
    drawn = draw(CHECKOUT, files(CHECKOUT, rooms.split(",")), seed, count)
    noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        for outcome in outcomes(CHECKOUT, Path(folder), drawn, workers):
            noticed += bool(outcome.noticed_by)
            click.echo(row(outcome))
            if results:
                with results.open("ab") as file:
                    file.write(record(outcome, seed))
    click.echo(f"{noticed} of {len(drawn)} faults were noticed ({noticed / len(drawn):.0%})")


if __name__ == "__main__":
    run(main, "python -m kube_rdma_tools.mutants")
