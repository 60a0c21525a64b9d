"""What the forge, git and editors run for a person: the words and linters of a checkout.

Whether the workflows are safe, the linter `workflows` says (test_linters.py).
"""

from __future__ import annotations

import json

import yaml

from .test_linters import LINTERS
from .tree import ROOT

WORKFLOWS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
}


def test_words_of_a_person_are_words_of_the_forge() -> None:
    """A workflow runs what anybody runs in a checkout."""
    for run in ("make check", "make docs", ".ci/run", "make audit"):
        assert any(f"- run: {run}\n" in text for text in WORKFLOWS.values()), run


def test_one_job_alone_may_write_and_each_has_an_end() -> None:
    """The one that publishes a release: it builds nothing, and runs nothing of the checkout."""
    jobs = {
        (name, key): job
        for name, text in WORKFLOWS.items()
        for key, job in yaml.safe_load(text)["jobs"].items()
    }
    writing = {key for key, job in jobs.items() if "write" in job["permissions"].values()}
    assert writing == {("release", "publish")}
    steps = jobs["release", "publish"]["steps"]
    assert not [step for step in steps if "actions/checkout@" in step.get("uses", "")]
    assert [key for key, job in jobs.items() if "timeout-minutes" not in job] == []


def test_hooks_before_a_commit_are_the_linters_of_make_check() -> None:
    """With the locked versions, which lie in .venv."""
    read = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = {hook["id"]: hook["entry"] for hook in read["repos"][0]["hooks"]}
    assert hooks == {name: f".venv/bin/{' '.join(words)}" for name, words in LINTERS.items()}


def test_the_container_for_developers_is_the_machine_that_readme_names() -> None:
    """A Debian 12 with git, make and python3, made ready as make does it."""
    read = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert read["image"] == "debian:12"
    assert {"git", "make", "python3"} <= set(read["onCreateCommand"].split())
    assert read["updateContentCommand"].endswith("tools/bootstrap")
