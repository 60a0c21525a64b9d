"""`python -m tests.fuzz`: feeds readers of foreign bytes, a row for each (docs/faults.md)."""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
import structlog

from bench.results import FOLDER, this_machine
from kube_base.errors import Refused
from kube_rdma_tools.release.version import commit_of
from tests.fuzz import corpus
from tests.fuzz.engine import FuzzOutcome, FuzzPlan, run, silent
from tests.fuzz.table import chosen
from tests.fuzz.target import ROOT, FuzzTarget

RESULTS = FOLDER / "fuzz"
_ROW = "{:42} {:>10} {:>9} {:>8} {:>8}"


def row(outcome: FuzzOutcome) -> str:
    """One target as a line of the table."""
    return _ROW.format(
        outcome.target[:42],
        f"{outcome.inputs:,}",
        f"{outcome.features:,}",
        f"{outcome.seconds:.0f} s",
        len(outcome.defects),
    )


def record(outcome: FuzzOutcome, seed: int, commit: str) -> bytes:
    """The same as a line of JSON, with what is needed to compare it."""
    fields = {
        "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "commit": commit,
        "machine": this_machine(),
        "target": outcome.target,
        "inputs": outcome.inputs,
        "features": outcome.features,
        "seconds": outcome.seconds,
        "seed": seed,
        "defects": [f"{defect.kind} at {defect.place}" for defect in outcome.defects],
    }
    return msgspec.json.encode(fields) + b"\n"


def keep(target: FuzzTarget, folder: Path, outcome: FuzzOutcome) -> None:
    """Put what reached something new into the repository's corpus, and what shows a defect."""
    found = [path.read_bytes() for path in sorted((folder / "corpus").iterdir())]
    kept = corpus.chosen(target, (*corpus.read(target), *found))
    corpus.write(target, (*kept, *(defect.data for defect in outcome.defects)))


@click.command()
@click.option("--target", "names", multiple=True, help="Name of a target; all without it.")
@click.option("--inputs", default=20_000, show_default=True, help="Inputs of each target.")
@click.option("--seconds", default=60, show_default=True, help="Seconds of each target at most.")
@click.option("--seed", default=1, show_default=True, help="Number that draws the inputs.")
@click.option("--keep", "keeps", is_flag=True, help="Write what is worth keeping into the corpora.")
@click.option("--record", "records", is_flag=True, help="Append each row to bench/results/fuzz.")
def main(
    names: tuple[str, ...], inputs: int, seconds: int, seed: int, keeps: bool, records: bool
) -> None:
    """Feed readers of foreign bytes; the exit code is 1 if one of them has a defect."""
    try:
        targets = chosen(names)
    except Refused as refused:
        raise click.ClickException(str(refused)) from refused
    structlog.configure(processors=[silent])
    commit = commit_of(ROOT, "+")
    fed = defects = 0
    click.echo(_ROW.format("target", "inputs", "features", "time", "defects"))
    for target in targets:
        with tempfile.TemporaryDirectory(prefix="kube-rdma-fuzz-") as folder:
            outcome = run(target, FuzzPlan(inputs, seconds, seed), Path(folder))
            if keeps:
                keep(target, Path(folder), outcome)
        fed, defects = fed + outcome.inputs, defects + len(outcome.defects)
        click.echo(row(outcome))
        for defect in outcome.defects:
            click.echo(f"  {defect.kind} at {defect.place}: {defect.words}\n    {defect.data!r}")
        if records:
            RESULTS.mkdir(parents=True, exist_ok=True)
            with (RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.jsonl").open("ab") as file:
                file.write(record(outcome, seed, commit))
    click.echo(f"{fed:,} inputs, {defects} {'defect' if defects == 1 else 'defects'}")
    sys.exit(bool(defects))


if __name__ == "__main__":
    main(prog_name="python -m tests.fuzz")
