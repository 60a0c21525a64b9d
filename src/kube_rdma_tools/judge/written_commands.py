"""The kubectl commands that kube-rdma's pages, help and messages tell people to type.

kubectl takes a plural, a singular or a short name of a kind without its group. It chooses one of
the groups that have it (k8s.io/client-go restmapper). So a word that two groups have is safe only
where no text asks people to type it alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_PLACES = (
    "README.md",
    "docs",
    "examples",
    "charts",
    "config",
    "src/kube_base",
    "src/kube_client",
    "src/kube_rdma",
    "src/kube_rdma_whereabouts",
)
_SUFFIXES = (".md", ".txt", ".yaml", ".json", ".sh", ".tpl")
_COMMAND = re.compile(r"\bkubectl\b((?:\\\n|[^`|;&\n])*)")
_GAP = re.compile(r"[\s,\\]+")
_WITH_GROUP = "--api-version="
"""The option that gives `kubectl explain` the group."""


def alone(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and word for each word of the kubectl commands in a text, a possible kind.

    A command with `--api-version=` names the group, so its words are left out.
    """
    for command in _COMMAND.finditer(text):
        if _WITH_GROUP in command[1]:
            continue
        line = text.count("\n", 0, command.start()) + 1
        for word in _GAP.split(command[1]):
            yield line, word.strip("'\"()").partition("/")[0]


def alone_in_code(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and word as `alone` does, for all string literals of a Python module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            written = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            written = node.value
        else:
            continue
        for line, word in alone(written):
            yield node.lineno + line - 1, word


@cache
def written_alone() -> Mapping[str, str]:
    """Return each word of `alone` in this checkout's files, with the first place that has it."""
    words: dict[str, str] = {}
    for path in _files():
        text = path.read_text(encoding="utf-8")
        if "kubectl" not in text:
            continue
        read = alone_in_code if path.suffix == ".py" else alone
        for line, word in read(text):
            words.setdefault(word, f"{path.relative_to(_ROOT)}:{line}")
    return words


def _files() -> Iterator[Path]:
    for place in _PLACES:
        top = _ROOT / place
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.suffix in (*_SUFFIXES, ".py") and path.is_file():
                yield path
