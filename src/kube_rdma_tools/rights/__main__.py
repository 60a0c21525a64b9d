"""`make rights`: compares what roles grant with what runs of the lab used."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from kube_rdma_tools.rights import judgement, recorded, used
from kube_rdma_tools.rights.exceptions import REFUSALS, UNUSED
from kube_rdma_tools.rights.granted import granted
from kube_rdma_tools.rights.used import Evidence

NOTHING = Evidence(frozenset(), frozenset())


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--record", is_flag=True, help="Add what these runs used to the recorded evidence.")
@click.option("--anew", is_flag=True, help="Leave out what was recorded before.")
def main(folder: Path, *, record: bool, anew: bool) -> None:
    """Compare the roles of installations with the runs in FOLDER, each a file *.jsonl.

    What was recorded counts too, unless --anew is given. Exits with 1 if something does not fit.
    """
    runs = used.evidence(used.read(folder)) if folder.is_dir() else NOTHING
    if not runs.used and (record or anew):
        print(
            f"{folder} has no run: run tests of the lab first, which leave one there",
            file=sys.stderr,
        )
        sys.exit(2)
    rights = granted()
    before = NOTHING if anew else recorded.read(recorded.FILE.read_text(encoding="utf-8"))
    evidence = recorded.merged(before, runs, rights)
    if record:
        day = datetime.now(UTC).date().isoformat()
        recorded.FILE.write_text(recorded.write(evidence, day), encoding="utf-8")
    listed = list(judgement.findings(rights, evidence, UNUSED, REFUSALS, recorded.NAME))
    for sentence in listed:
        print(sentence)
    shown = len(evidence.used & rights)
    print(f"{len(rights)} rights: {shown} used, {len(UNUSED)} exceptions, {len(listed)} findings.")
    sys.exit(1 if listed else 0)


if __name__ == "__main__":
    main()
