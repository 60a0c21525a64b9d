"""Workflows of the forge: least rights, actions that cannot change, nothing foreign in a shell.

What the forge reads of them actionlint and zizmor judge (CONTRIBUTING.md says how to run both).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from .test_linters import LINTERS
from .tree import ROOT

WORKFLOWS = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
}
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
# The rights to write that a job has, each with its reason there.
MAY_WRITE = {("release.yml", "publish"): {"contents", "packages", "id-token", "attestations"}}


def faults(name: str, text: str) -> Iterator[str]:
    """What of a workflow gives more than it has to."""
    read: dict[Any, Any] = yaml.safe_load(text)
    if read["permissions"] != {}:
        yield "jobs have rights that they do not name"
    for line in text.splitlines():
        if "uses: " in line and not PINNED.search(line):
            yield f"not pinned by its hash: {line.strip()}"
    for key, job in read["jobs"].items():
        writes = {right for right, level in job["permissions"].items() if level != "read"}
        if writes != MAY_WRITE.get((name, key), set()):
            yield f"job {key} may write {sorted(writes)}"
        if "timeout-minutes" not in job:
            yield f"job {key} has no end"
        for step in job["steps"]:
            if "${{" in step.get("run", ""):
                yield f"job {key} has an expression in a shell"
            checkout = "actions/checkout@" in step.get("uses", "")
            if checkout and step["with"]["persist-credentials"] is not False:
                yield f"job {key} leaves the token in the checkout"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_has_no_more_than_it_needs(name: str) -> None:
    assert not list(faults(name, WORKFLOWS[name]))


@pytest.mark.parametrize(
    ("here", "planted"),
    [
        ("permissions: {}", "permissions: {contents: write}"),
        ("contents: read", "contents: write"),
        ("persist-credentials: false", "persist-credentials: true"),
        ("run: make check", "run: make check ${{ github.head_ref }}"),
        ("    timeout-minutes: 60\n", ""),
        (" # v7.0.1", ""),
    ],
)
def test_a_planted_fault_is_found(here: str, planted: str) -> None:
    assert list(faults("check.yml", WORKFLOWS["check.yml"].replace(here, planted, 1)))


def test_words_of_a_person_are_words_of_the_forge() -> None:
    """A workflow runs what anybody runs in a checkout."""
    for run in ("make check", "make docs", ".ci/run", "make audit"):
        assert any(f"- run: {run}\n" in text for text in WORKFLOWS.values()), run


def test_hooks_before_a_commit_are_the_linters_of_make_check() -> None:
    read = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = {hook["id"]: hook["entry"].split() for hook in read["repos"][0]["hooks"]}
    assert hooks.keys() == LINTERS.keys()
    for name, words in LINTERS.items():
        assert hooks[name] == [f".venv/bin/{words[0]}", *words[1:]]


def test_the_container_for_developers_is_the_machine_that_readme_names() -> None:
    read = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert read["image"] == "debian:12"
    assert {"git", "make", "python3"} <= set(read["onCreateCommand"].split())
    assert read["updateContentCommand"].endswith("tools/bootstrap")
