"""What documents ask for: each row is needed, hides nothing else, and is told with a way out."""

from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.frozen import replace
from kube_rdma.cli.main import cli
from kube_rdma.install.installation import assignment, notes
from kube_rdma_tools.judge.by_document import BY_DOCUMENT
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.installations import assignments, installation
from kube_rdma_tools.judge.rules import judge

ROOT = Path(__file__).parents[3]
NOTES = " ".join((ROOT / "charts/kube-rdma/templates/NOTES.txt").read_text("utf-8").split())
ROWS = [
    pytest.param(row, id=f"{row.rule}, {row.objects[0]}, {row.presets[0]}") for row in BY_DOCUMENT
]


def allowed(row, preset, name, **values):
    """The violations that a row allows of a preset in an environment, with further values."""
    environment = ENVIRONMENTS[name]
    if values:
        given = replace(environment, values={**environment.values, **values})
        violations = judge(installation(preset, given), given)
    else:
        violations = judged(preset, name)
    return [violation for violation in violations if row.allows(violation, name, preset)]


@cache
def judged(preset, name):
    """What the judge sees of a preset in an environment: many rows are about the same."""
    return judge(installation(preset, ENVIRONMENTS[name]), ENVIRONMENTS[name])


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_needed_for_each_of_its_objects_everywhere(row):
    """And for each of its fields; what is needed no more is deleted."""
    fields = set()
    for name in row.environments:
        for preset in row.presets:
            seen = allowed(row, preset, name)
            assert {violation.where for violation in seen} == set(row.objects), (name, preset)
            fields |= {violation.field for violation in seen}
    for field in row.fields:
        assert any(seen.endswith(field) for seen in fields), field


@pytest.mark.parametrize("row", ROWS)
def test_the_values_of_a_row_end_its_violations(row):
    for name in row.environments if row.values else ():
        for preset in row.presets:
            assert not allowed(row, preset, name, **row.values), (name, preset)


@pytest.mark.parametrize("row", ROWS)
def test_whoever_installs_it_is_told_before(row):
    """By render for the very environment, by the chart's notes, and on a page."""
    assert row.sentence in NOTES
    assert (ROOT / row.page).is_file()
    assert row.page in row.sentence
    for name in row.environments:
        given = assignments(ENVIRONMENTS[name], ENVIRONMENTS[name].values)
        layers = [assignment(text) for text in given]
        for preset in row.presets:
            assert row.sentence in notes(layers, preset), (name, preset)
    given = (*given, "image.repository=registry.example.com/a/b")
    options = [word for text in given for word in ("--set", text)]
    ran = CliRunner().invoke(cli, ["render", "--preset", preset, *options])
    assert f"# {row.sentence}" in ran.stdout.partition("apiVersion")[0].splitlines()
    assert row.sentence in ran.stderr.splitlines()
