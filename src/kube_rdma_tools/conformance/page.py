"""Evidence as files: a page of Markdown for each item, and a YAML with entries for PRODUCT.yaml.

Last step. The programme wants `id`, `description` and `level` of an entry unchanged. So the YAML
has the id to find it by, and the fields that a vendor fills: status, evidence and notes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

import yaml

from kube_base.frozen import Frozen
from kube_rdma_tools.conformance.evidence import (
    CheckVerdict,
    ConformanceCheck,
    ConformanceItem,
    RecordedCommand,
)
from kube_rdma_tools.page_tables import markdown_row

_LINES = 60  # of a command's output that a page shows
_KARS = "https://github.com/kubernetes-sigs/ai-conformance/tree/main/kars"
_FENCE = "~~~~"  # none of a command's output ends it


class ConformanceScene(Frozen):
    """The day of a conformance run, and names of programs or nodes with their versions."""

    date: str
    versions: tuple[tuple[str, str], ...]


def files(items: Sequence[ConformanceItem], scene: ConformanceScene) -> Mapping[str, str]:
    """Return the evidence files' texts by name: a page for each item, and items.yaml."""
    pages = {f"{item.id}.md": "\n".join(_page(item, scene)) for item in items}
    return pages | {"items.yaml": _entries(items)}


def summary(items: Sequence[ConformanceItem]) -> str:
    """Return a line for each item and check, for the terminal."""
    lines = []
    for item in items:
        lines.append(f"{item.id} (KAR-{item.number}): {item.status or 'nothing was run'}")
        lines += [f"  {one.verdict.value.ljust(7)}  {one.title}" for one in item.checks]
    return "\n".join(lines)


def _entries(items: Sequence[ConformanceItem]) -> str:
    entries = [
        {
            "id": item.id,
            "status": item.status,
            "evidence": [f"{item.id}.md"],
            "notes": " ".join(_notes(item)),
        }
        for item in items
    ]
    head = "# Copy these fields into the entries of spec.networking that have the same id.\n"
    text: str = yaml.safe_dump({"spec": {"networking": entries}}, sort_keys=False, width=100)
    return head + text


def _notes(item: ConformanceItem) -> Iterator[str]:
    """Yield a note for each check that is not met or not run."""
    for check in item.checks:
        if check.verdict is not CheckVerdict.MET:
            yield f"{check.title}: {check.verdict.value}. {_ended(check.sentence)}"


def _page(item: ConformanceItem, scene: ConformanceScene) -> Iterator[str]:
    yield f"# {item.title} (`{item.id}`)"
    yield ""
    yield f"Evidence for [KAR-{item.number}]({_KARS}), taken on {scene.date} by `make conformance`."
    yield f"Status: **{item.status or 'not assessed'}**."
    yield ""
    yield markdown_row(("what", "version"))
    yield "|---|---|"
    yield from (markdown_row(row) for row in scene.versions)
    yield ""
    yield markdown_row(("check", "result", "seen"))
    yield "|---|---|---|"
    for check in item.checks:
        yield markdown_row((check.title, check.verdict.value, _flat(check.sentence)))
    for check in item.checks:
        yield from _section(check)
    yield ""


def _section(check: ConformanceCheck) -> Iterator[str]:
    yield ""
    yield f"## {check.title}"
    yield f"**{check.verdict.value.capitalize()}.** {_ended(_flat(check.sentence))}"
    for command in check.commands:
        yield ""
        yield from _command(command)


def _command(command: RecordedCommand) -> Iterator[str]:
    """Yield the lines of a code block with a command, its stdin and its output."""
    yield f"{_FENCE}console"
    here = " <<'END'" if command.stdin else ""
    yield f"$ {shlex.join(command.words)}{here}"
    if command.stdin:
        yield from (*command.stdin.splitlines(), "END")
    outcome = command.outcome
    lines = [*outcome.text.rstrip().splitlines(), *outcome.errors.rstrip().splitlines()]
    yield from (line.replace(_FENCE, "~ ~") for line in lines[:_LINES])
    if len(lines) > _LINES:
        yield f"… {len(lines) - _LINES} more lines"
    if outcome.code:
        yield f"(exit code {outcome.code})"
    yield _FENCE


def _flat(sentence: str) -> str:
    return " ".join(sentence.split())


def _ended(sentence: str) -> str:
    return f"{sentence.rstrip('.')}."
