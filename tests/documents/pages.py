"""Markdown to code blocks and commands: the first step, pure.

A block is fenced, and the word behind the fence says what it is: `sh` for commands, `console` for
what the last command of the block before it prints, any other word for all else. A comment in the
line above a block of commands says who runs it (rules.py knows the comments).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS, OUTPUT, INDENTED = "sh", "console", "(indented)"

_FENCE = re.compile(r"^ *(`{3,})(.*)$")
_COMMENT = re.compile(r"^ *<!-- *(.*?) *-->$")
_GOES_ON = ("\\", "|", "&&")  # a line that ends so is continued; `||` does too


@dataclass(frozen=True, slots=True)
class Command:
    """What one presses Enter behind: a line of a page, and those that continue it.

    `shown` is what the page shows of its output, None where it shows nothing.
    """

    page: str
    line: int
    text: str
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A code block; `line` is where its text begins, `marker` the comment above it, else ""."""

    page: str
    line: int
    language: str
    marker: str
    text: str
    shown: str | None = None  # as in Command, of the last one

    @property
    def place(self) -> str:
        """Where it is, as editors read it."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> tuple[Command, ...]:
        """What it says to run, in order; nothing unless it is a block of commands."""
        read = tuple(self._commands()) if self.language == COMMANDS else ()
        return (*read[:-1], *(replace(last, shown=self.shown) for last in read[-1:]))

    def _commands(self) -> Iterator[Command]:
        begun: list[str] = []
        for number, line in enumerate(self.text.splitlines(), self.line):
            if begun or (line.strip() and not line.lstrip().startswith("#")):
                begun.append(line)
            if begun and not line.endswith(_GOES_ON):
                yield Command(self.page, number - len(begun) + 1, "\n".join(begun))
                begun = []
        if begun:  # to be continued by nothing: the shell will say what is wrong
            yield Command(self.page, self.line, "\n".join(begun))


def pages() -> dict[str, str]:
    """Return the documents that people follow, by name relative to the checkout's root."""
    globs = ("README.md", "CONTRIBUTING.md", "docs/*.md", "examples/**/README.md")
    paths = [path for pattern in globs for path in sorted(ROOT.glob(pattern))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def blocks(page: str, text: str) -> tuple[Block, ...]:
    """Read a page's code blocks in order; each block of commands with the output behind it."""
    read = list(_blocks(page, text))
    for place, (block, behind) in enumerate(pairwise(read)):
        if block.language == COMMANDS and behind.language == OUTPUT:
            read[place] = replace(block, shown=behind.text)
    return tuple(read)


def _blocks(page: str, text: str) -> Iterator[Block]:
    lines = text.splitlines()
    above, number = "", 0
    while number < len(lines):
        line = lines[number]
        if fence := _FENCE.match(line):
            end = _end_of(lines, number + 1, fence[1])
            comment = _COMMENT.match(above)
            body = "\n".join(lines[number + 1 : end])
            yield Block(page, number + 2, fence[2].strip(), comment[1] if comment else "", body)
            number = end
        elif line.startswith(("    ", "\t")) and not above.strip():
            yield Block(page, number + 1, INDENTED, "", line.strip())
        above, number = line, number + 1


def _end_of(lines: list[str], start: int, fence: str) -> int:
    """Return the index of the line that closes a fence; that behind the last if none does."""
    ends = (number for number in range(start, len(lines)) if lines[number].strip() == fence)
    return next(ends, len(lines))
