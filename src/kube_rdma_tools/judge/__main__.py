"""`python -m kube_rdma_tools.judge`: prints what clusters refuse of every preset."""

from __future__ import annotations

import click

from kube_rdma_tools.judge.by_document import is_by_document
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.installations import installation, presets
from kube_rdma_tools.judge.listing import lines, occurrence
from kube_rdma_tools.judge.rules import RULES, judge
from kube_rdma_tools.judge.table import JudgedPreset, table


@click.command()
@click.option(
    "--preset",
    "wanted_presets",
    multiple=True,
    type=click.Choice(presets()),
    help="Judge this preset only. May be repeated.",
)
@click.option(
    "--environment",
    "wanted_environments",
    multiple=True,
    type=click.Choice(tuple(ENVIRONMENTS)),
    help="Judge in this kind of cluster only. May be repeated.",
)
@click.option(
    "--rule",
    "wanted_rules",
    multiple=True,
    type=click.Choice(tuple(RULES)),
    help="Show this rule only. May be repeated.",
)
@click.option(
    "--documents", is_flag=True, help="Show also what a document asks for (by_document.py)."
)
@click.option("--lines", "as_lines", is_flag=True, help="Print one line for each object.")
def main(
    wanted_presets: tuple[str, ...],
    wanted_environments: tuple[str, ...],
    wanted_rules: tuple[str, ...],
    documents: bool,
    as_lines: bool,
) -> None:
    """Judge installations: what would a cluster of each kind refuse of each preset?"""
    judged = [
        JudgedPreset(
            ENVIRONMENTS[name],
            preset,
            tuple(
                violation
                for violation in judge(installation(preset, ENVIRONMENTS[name]), ENVIRONMENTS[name])
                if (not wanted_rules or violation.rule in wanted_rules)
                and (documents or not is_by_document(violation, name, preset))
            ),
        )
        for name in wanted_environments or ENVIRONMENTS
        for preset in wanted_presets or presets()
    ]
    if as_lines:
        entries = {
            occurrence(violation, entry.environment.name, entry.preset)
            for entry in judged
            for violation in entry.violations
        }
        shown = lines(entries, tuple(ENVIRONMENTS))
    else:
        shown = table(judged)
    for line in shown:
        click.echo(line)


if __name__ == "__main__":
    main(prog_name="judge")
