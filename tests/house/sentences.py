"""Draws sentences from all that users see: `python -m tests.house.sentences --seed 1 --count 50`.

Someone then reads them as a new user would. The tests beside it hold words and forms; whether a
sentence is plain, only a reader can say. docs/writing.md has what to do with those that are not.

A sentence has its rank from the seed and its own words alone. So a seed draws the same sentences
again, and after a sentence is rewritten the others of the draw stay.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click
import yaml

from kube_rdma.programs.cli.main import cli

from .test_glossary import SCOPES, messages
from .test_help import contexts, paragraphs
from .tree import COMMENT, FENCED, ROOT, texts

FEWEST = 5  # words; fewer are a name or a heading
KEY = "description"  # what definitions and schemas show to people
# The order counts: the generated pages come behind what they are made from.
_CHART = "charts/kube-rdma"
_CHART_FILES = ("values.schema.json", "templates/NOTES.txt", "README.md")
NO_TEXTS = {  # what is as long as sentences, and is for no reader
    "src/kube_rdma/adapters/journal/format.py",  # lists of names
    "src/kube_rdma/rules/verify/perftest.py",  # a script of shell
    "src/kube_rdma/views/nested_boxes.py",  # parts of a picture
}
FILES = {
    "definitions": ("config/crds", "config/operator", "docs/schema"),
    "chart": tuple(f"{_CHART}/{name}" for name in _CHART_FILES),
    "pages": ("README.md", "docs", "examples"),
}
_WORD = re.compile(r"(?<![\w/.<$-])[A-Za-z][a-z'’]*(?![\w/]|\.\w)")
_BOUNDARY = re.compile(r"(?<=[.!?])[\"*)]*(\s+)(?=[\"`*(\[]*[A-Z`])")
_PIECE = re.compile(r"(?m)^(?=\s*(?:[-*+] |\d+\. |\||#|>|\s*$))")
_ITEM = re.compile(r"^[ >]*(?:[-*+]|\d+\.) ")
_CELL = re.compile(r"(?<!\\)\|")
_TEMPLATE = re.compile(r"(?s)\{\{.*?\}\}")


class Sentence(NamedTuple):
    """A sentence that users see: the kind of text, its file and first line, its words."""

    scope: str
    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """Where it is, as editors read it."""
        return f"{self.file}:{self.line}"


def split(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """The sentences of a piece of prose, each with the line where it begins."""
    begin = 0
    for boundary in (*_BOUNDARY.finditer(text), None):
        end = boundary.start(1) if boundary else len(text)
        part = text[begin:end]
        written = " ".join(part.split())
        if len(_WORD.findall(written)) >= FEWEST:
            skipped = len(part) - len(part.lstrip())
            yield line + text.count("\n", 0, begin + skipped), written
        begin = boundary.end() if boundary else end


def page(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a page: paragraphs, items, cells of tables; no code, no comments."""
    for pattern in (FENCED, COMMENT):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    line = 1
    for piece in _PIECE.split(text):
        if piece.lstrip().startswith("|"):
            for cell in _CELL.split(piece):
                yield from split(cell, line)
        elif piece.startswith("#"):
            heading, _, below = piece.partition("\n")
            yield from split(heading.lstrip("# "), line)
            yield from split(below, line + 1)
        else:
            yield from split(_ITEM.sub("", piece), line)
        line += piece.count("\n")


def values(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """The sentences of the fields below a definition or a schema."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == KEY and isinstance(value, yaml.ScalarNode):
                yield from ((value.start_mark.line + 1, text) for _, text in split(value.value))
            else:
                yield from values(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from values(value)


def helps() -> Iterator[Sentence]:
    """The paragraphs of `--help`; options are among the messages, where their lines are."""
    for context in contexts(cli):
        function = inspect.unwrap(context.command.callback or click.Command)
        file = str(inspect.getsourcefile(function)).removeprefix(f"{ROOT}/")
        line = inspect.getsourcelines(function)[1]
        for text in paragraphs(context):
            yield from (Sentence("help", file, line, words) for _, words in split(text))


def of_file(name: str, text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a file, read as its ending says."""
    if name.endswith(".md"):
        yield from page(text)
    elif name.endswith(".txt"):
        yield from page(_TEMPLATE.sub(lambda match: "\n" * (1 + match[0].count("\n")), text))
    elif name.endswith((".json", ".yaml")):
        yield from values(yaml.compose(text, yaml.CSafeLoader))


def code() -> Iterator[Sentence]:
    """What programs print and write into Events, options of commands, alerts and dashboards."""
    _, parts = SCOPES["messages"]
    for part in parts:
        for name, line, text in messages(part):
            if name in NO_TEXTS:
                continue
            yield from (Sentence("messages", name, *each) for each in split(text, line))


def written() -> Iterator[Sentence]:
    """What stands in files that users read: definitions, the chart, pages."""
    for scope, tops in FILES.items():
        for name, text in texts(*tops):
            if scope != "pages" or is_page(name):
                yield from (Sentence(scope, name, *each) for each in of_file(name, text))


def sentences() -> tuple[Sentence, ...]:
    """All that users see, a sentence that stands in several files only where it comes first."""
    read: dict[str, Sentence] = {}
    for sentence in (*code(), *helps(), *written()):
        read.setdefault(sentence.text, sentence)
    return tuple(read.values())


def is_page(name: str) -> bool:
    """Whether users read it; decisions are of their day, docs/writing.md quotes what is wrong."""
    is_for_users = not name.startswith("docs/decisions/") and name != "docs/writing.md"
    return name.endswith(".md") and is_for_users


def draw(read: Iterable[Sentence], seed: int, count: int) -> list[Sentence]:
    """As many of them, at random: those of the lowest rank."""
    return sorted(read, key=lambda each: rank(seed, each.text))[:count]


def rank(seed: int, text: str) -> bytes:
    """The same on every machine, and another for each seed."""
    return hashlib.sha256(f"{seed}\0{text}".encode()).digest()


@click.command()
@click.option("--seed", type=int, required=True, help="Number that the draw follows from.")
@click.option("--count", type=int, default=50, show_default=True, help="Number of sentences.")
def main(seed: int, count: int) -> None:
    """Print sentences that users see, drawn at random, with their places."""
    read = sentences()
    for sentence in sorted(draw(read, seed, count)):
        click.echo(f"{sentence.place}: {sentence.text}")
    click.echo(f"{min(count, len(read))} of {len(read)} sentences, seed {seed}")


if __name__ == "__main__":
    main()
