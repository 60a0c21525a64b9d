"""Texts that users see have the field's words: healthy, allocatable, device files, desired.

A word is banned here where it is wrong without a look at its sentence. Each scope is what one kind
of reader sees: messages of programs, help of commands, sentences of fields, the chart, dashboards
and alerts, pages.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache

import click
import pytest
import yaml

from kube_rdma.programs.cli.main import cli

from .test_help import contexts, paragraphs
from .tree import COMMENT, FENCED, texts

FEWEST = 4  # words of a sentence; fewer are a name, a key, a word that programs compare

# What is found -> what to say in its place.
BANNED = {
    r"ill|sick": "unhealthy",
    r"doors?": "device files, or the folder that is meant",
    r"given away": "allocatable",
    r"offered": "allocatable (by the kubelet), advertised (by a plugin)",
    r"wish(?:es|ed)?": "desired",
    r"remarks?": "warnings, notes",
    r"seeds?": "the document or the preset, by its name",
    r"ghosts?": "stand-in",
    r"by choice": "optional",
    r"taken back": "reclaimed, removed, undone",
    r"anew": "again, recreated",
    r"mend(?:s|ed|ing)?": "fix",
    r"whoever|(?:no|some)body(?:['’]s)?": "the user, the administrator, no pod, another program",
    r"of now|as ever": "now",
    r"likewise": "also, or the fact itself",
    r"is none of": "is not one of",
    r"tells? of|hears? of": "reports",
    r"(?:is|are|was|were|be|been) told": "gets, is reported",
    r"call(?:s|ed)? it well": "healthy, or the fact itself",
}
# These have another meaning in capitals, or only in these: US, DOUR.
BANNED_AS_WRITTEN = {
    r"[Uu]s|[Ww]e|[Oo]urs?": "kube-rdma, the agent, the project",
    r"S[0-4]": "the document or the preset, by its name",
}

# Scope, name of the text and phrase -> why the word is right there.
ALLOWED: dict[tuple[str, str, str], str] = {
    ("definitions", "nodepolicies.yaml", "remarks say for"): "the field status.remarks",
    ("pages", "docs/reference/nodepolicy.md", "remarks say for"): "the field status.remarks",
    ("messages", "bandwidth_check.py", "ns, us, ms, s"): "microseconds, as Go writes them",
    ("definitions", "bandwidthchecks.yaml", "ns, us, ms or s"): "microseconds, as Go writes them",
    ("pages", "bandwidthcheck.md", "ns, us, ms or s"): "microseconds, as Go writes them",
}

_WORD = r"(?<![\w./$<-])(?:%s)(?![\w<-]|\.\w)"  # not a part of a path, an option, a field's path
_PATTERNS = [
    (re.compile(_WORD % words.replace(" ", r"\s+"), flags), better)
    for table, flags in ((BANNED, re.IGNORECASE), (BANNED_AS_WRITTEN, 0))
    for words, better in table.items()
]
_CODE = re.compile(r"(?s)(`+)(?!`)(?:(?!\n\n).)+?\1")
_TARGET = re.compile(r"\]\([^)\s]*\)")
_TEMPLATE = re.compile(r"(?s)\{\{.*?\}\}")


def faults(scope: str, name: str, line: int, text: str) -> Iterator[str]:
    """One sentence for each banned word in a text that begins in this line."""
    for pattern, better in _PATTERNS:
        for found in pattern.finditer(text):
            if not is_allowed(scope, name, text, found):
                begin = line + text.count("\n", 0, found.start())
                part = " ".join(text[max(0, found.start() - 40) : found.end() + 30].split())
                yield f"{name}:{begin}: {found[0]!r} (say: {better}) in … {part} …"


def is_allowed(scope: str, name: str, text: str, found: re.Match[str]) -> bool:
    """Whether the word is part of a phrase that is right in this text."""
    for where, ending, phrase in ALLOWED:
        begin = text.find(phrase, max(0, found.start() - len(phrase)))
        if where == scope and name.endswith(ending) and 0 <= begin <= found.start():
            return found.end() <= begin + len(phrase)
    return False


def strings(text: str) -> Iterator[tuple[int, str]]:
    """The sentences among the string literals of a module, with their lines.

    Not its docstrings: those of fields are in the definitions, the others are for makers. What is
    put into a sentence when it is made stands as `{}`.
    """
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "{}" for one in node.values]
            yield from sentence(node.lineno, "".join(map(str, parts)))
            waiting += [one for one in node.values if not isinstance(one, ast.Constant)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from sentence(node.lineno, node.value)
        else:
            waiting += ast.iter_child_nodes(node)


def sentence(line: int, text: str) -> Iterator[tuple[int, str]]:
    """Nothing for a text that is too short to be one."""
    if len(text.split()) >= FEWEST:
        yield line, text


def prose(text: str) -> str:
    """A page without code, comments and targets of links, its lines where they were."""
    for pattern in (FENCED, COMMENT, _CODE, _TARGET):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def descriptions(schema: object) -> Iterator[str]:
    """The sentences below a schema."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "description" and isinstance(value, str):
                yield value
            else:
                yield from descriptions(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from descriptions(value)


def titles(board: object) -> Iterator[str]:
    """The texts of a dashboard that a person reads."""
    if isinstance(board, dict):
        for key, value in board.items():
            if key in ("title", "description", "label", "legendFormat") and isinstance(value, str):
                yield value
            yield from titles(value)
    elif isinstance(board, list):
        for value in board:
            yield from titles(value)


def messages(part: str) -> Iterator[tuple[str, int, str]]:
    """The sentences in the modules of one part of the product."""
    for name, text in texts(f"src/kube_rdma/{part}"):
        if name.endswith(".py"):
            yield from ((name, line, found) for line, found in strings(text))


def helps(_: str) -> Iterator[tuple[str, int, str]]:
    """The texts of `--help`, of every command."""
    for context in contexts(cli):
        options = [one for one in context.command.params if isinstance(one, click.Option)]
        for text in (*paragraphs(context), *(option.help or "" for option in options)):
            yield context.command_path, 1, text


def definitions(folder: str) -> Iterator[tuple[str, int, str]]:
    """The sentences of kinds, as `kubectl explain` shows them."""
    for name, text in texts(folder):
        for found in descriptions(yaml.load(text, yaml.CSafeLoader)):
            yield name, 1, found


def chart(folder: str) -> Iterator[tuple[str, int, str]]:
    """What users of Helm read: values, README and notes, and the alerts."""
    for name in ("values.yaml", "README.md", "Chart.yaml"):
        ((path, text),) = texts(f"{folder}/{name}")
        yield path, 1, prose(text)
    ((path, text),) = texts(f"{folder}/values.schema.json")
    yield from ((path, 1, found) for found in descriptions(json.loads(text)))
    for name in ("NOTES.txt", "metrics.yaml"):
        ((path, text),) = texts(f"{folder}/templates/{name}")
        yield path, 1, _TEMPLATE.sub("{}", text)


def dashboards(folder: str) -> Iterator[tuple[str, int, str]]:
    """Titles and legends of panels."""
    for name, text in texts(folder):
        yield from ((name, 1, found) for found in titles(json.loads(text)))


def pages(top: str) -> Iterator[tuple[str, int, str]]:
    """What is read beside the product; decisions are of their day."""
    for name, text in texts(top):
        if name.endswith(".md") and not name.startswith("docs/decisions/"):
            yield name, 1, prose(text)


SCOPES = {
    "messages": (messages, ("adapters", "api", "model", "programs", "rules", "views")),
    "help": (helps, ("",)),
    "definitions": (definitions, ("config/crds", "config/operator")),
    "chart": (chart, ("charts/kube-rdma",)),
    "dashboards": (dashboards, ("config/dashboards",)),
    "pages": (pages, ("docs", "README.md", "examples")),
}
PLACES = [(scope, place) for scope, (_, places) in SCOPES.items() for place in places]


@cache
def found(scope: str, place: str) -> tuple[tuple[str, int, str], ...]:
    """Name, line and text of all that is read there."""
    read, _ = SCOPES[scope]
    return tuple(read(place))


@pytest.mark.parametrize(("scope", "place"), PLACES)
def test_texts_have_the_words_of_the_field(scope: str, place: str) -> None:
    """And there are texts at all."""
    read = found(scope, place)
    assert read
    lines = [line for each in read for line in faults(scope, *each)]
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.parametrize("allowed", ALLOWED)
def test_what_is_allowed_is_there(allowed: tuple[str, str, str]) -> None:
    """An exception that nothing needs any more goes."""
    scope, ending, phrase = allowed
    read = [each for where, place in PLACES if where == scope for each in found(where, place)]
    assert any(name.endswith(ending) and phrase in text for name, _, text in read)
    assert [line for each in read for line in faults("none", *each) if phrase.split()[0] in line]


@pytest.mark.parametrize(
    "text",
    [
        "The card is ill.",
        "It is given away by the agent.",
        "Its doors are closed.",
        "Nobody has asked.",
        "It is somebody's.",
        "Whoever asks gets it.",
        "Mend the cards first.",
        "The pod starts anew.",
        "Pods are\ntold their names.",
        "The agent tells of cards.",
        "See the seed.",
        "As S3 shows it.",
        "This is ours; we made it.",
        "It calls us.",
    ],
)
def test_a_planted_word_is_found_in_each_scope(text: str) -> None:
    """As a message, in a page, as the sentence of a field and the title of a panel."""
    assert [line for _, one in strings(f"x = {text + ' And so on.'!r}") for line in of(one)]
    assert of(prose(f"# Title\n\n`we` and {text}\n"))
    assert [line for one in descriptions({"a": [{"description": text}]}) for line in of(one)]
    assert [line for one in titles({"panels": [{"title": text}]}) for line in of(one)]


def of(text: str) -> list[str]:
    """The faults of a text that stands alone."""
    return list(faults("pages", "x.md", 1, text))


def test_a_fault_has_its_line_and_a_better_word() -> None:
    """In a message that is put together, too."""
    module = '"""Nobody."""\nx = 1\n"""Nobody knows of it."""\ny = f"a {x} that is " f"ill now"\n'
    ((line, text),) = strings(module)
    (fault,) = faults("messages", "x.py", line, text)
    assert fault == "x.py:4: 'ill' (say: unhealthy) in … a {} that is ill now …"


@pytest.mark.parametrize(
    "text",
    [
        "`seed.label` and `we`",
        "```console\n$ nobody tells of us\n```",
        "<!-- held by: tests/x.py::test_nobody -->",
        "[the page](seed.md#wishes)",
        "--strict-seed and seed.label",
        "a skill, the US, DOUR, indoors, amend, examples/s1-vke, $OUR",
    ],
)
def test_code_and_words_that_only_look_alike_pass(text: str) -> None:
    """Nor is a name of something a word."""
    assert of(prose(f"Some text.\n\n{text}\n")) == []


def test_an_allowed_phrase_is_allowed_where_it_is_written_alone() -> None:
    """The word in another phrase, or the phrase in another text, is found."""
    name = "config/crds/nodepolicies.yaml"
    text = "remarks say for nodes why."
    assert list(faults("definitions", name, 1, text)) == []
    assert len(list(faults("definitions", name, 1, f"{text} See remarks."))) == 1
    assert len(list(faults("definitions", "config/crds/ippools.yaml", 1, text))) == 1
    assert len(list(faults("pages", name, 1, text))) == 1
