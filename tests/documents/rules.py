"""What a page's blocks have to say of themselves: who runs the commands, or why nobody does.

The second step, between pages.py and the tests that run commands. The markers:

`run: here`      a test runs it as written, on any machine
`run: lab`       a test runs it on a lab of machines
`run: native`    a test runs it on a lab of native nodes
`run by: FILE`   that file runs it; the command's words are in it
`not run: WHY`   nobody can, and the reason
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import click

from kube_rdma.cli.main import cli

from .pages import COMMANDS, INDENTED, OUTPUT, ROOT, Block, Command

LANGUAGES = {COMMANDS, OUTPUT, "json", "yaml", "text"}
OURS = {"kube-rdma", ".venv/bin/kube-rdma"}
# Of the shell, what comes with a cluster, what whoever installs has on a machine of theirs, and
# programs of a node.
NO_FILE_HERE = {
    *("export", "kubectl", "helm", "docker", "skopeo", "ctr"),
    *("pip", ".venv/bin/pip", "uvx", "twine"),
    *("udevadm", "networkctl", "nmcli"),
}
BIN = Path(sys.executable).parent
LOOKS_LIKE_A_COMMAND = re.compile(
    r"(?m)^ *(?:\$ )?(?:\S*/)?(?:kube-rdma|kubectl|make|pytest|python) "
)
# What takes more of a cluster than the page made, or the reader chose. A lab is nobody's.
TOO_FAR = {
    r"kubectl .*\bnodes? --all\b": "it takes nodes without cards; select those with",
    r"kubectl label .*--overwrite": "it overwrites what others wrote",
    r"kubectl get pods [^|]*\| *grep node-debugger": "it takes debug pods of others",
}
TOPS = ("config/", "docs/", "examples/", "src/", "tests/", "tools/")


class Runs(Enum):
    """Who runs a block of commands."""

    HERE = "run: here"
    LAB = "run: lab"
    NATIVE = "run: native"
    BY = "run by: "
    NEVER = "not run: "


def runs(block: Block) -> Runs | None:
    """Return who runs a block; None when its marker does not say."""
    whole = (Runs.HERE, Runs.LAB, Runs.NATIVE)
    exact = next((kind for kind in whole if block.marker == kind.value), None)
    begins = (kind for kind in Runs if kind not in whole and block.marker.startswith(kind.value))
    return exact or next(begins, None)


def faults(listed: tuple[Block, ...]) -> Iterator[str]:
    """One sentence for each thing that is wrong with a page's blocks."""
    for before, block in zip((None, *listed), listed, strict=False):
        if block.language == INDENTED:
            yield f"{block.place}: a block is indented; put it between fences with a word behind"
        elif block.language not in LANGUAGES:
            allowed = ", ".join(sorted(LANGUAGES))
            yield f"{block.place}: a block is {block.language!r}; its fence says one of {allowed}"
        elif block.language == "text" and LOOKS_LIKE_A_COMMAND.search(block.text):
            yield f"{block.place}: a command stands in a block of text, where nobody runs it"
        elif block.language == OUTPUT and (before is None or before.language != COMMANDS):
            yield f"{block.place}: output stands behind no command"
        elif block.language == COMMANDS:
            yield from (f"{block.place}: {fault}" for fault in _marker_faults(block))
            for command in block.commands:
                place = f"{command.page}:{command.line}"
                yield from (f"{place}: {fault}" for fault in _word_faults(command))


def _marker_faults(block: Block) -> Iterator[str]:
    kind = runs(block)
    rest = block.marker.removeprefix(kind.value) if kind else ""
    if kind is None:
        allowed = ", ".join(f"<!-- {each.value}… -->" for each in Runs)
        yield f"the marker {block.marker!r} does not say who runs it; write one of {allowed}"
    elif kind is Runs.NEVER and len(rest.split()) < 3:
        yield "the marker says no reason why it is not run"
    elif kind is Runs.BY and not (ROOT / rest).is_file():
        yield f"there is no file {rest!r} to run it"
    elif kind is Runs.BY:
        text = (ROOT / rest).read_text(encoding="utf-8")
        for command in block.commands:
            if command.text.partition("#")[0].strip() not in text:
                yield f"{rest} does not run `{command.text}`"


def _word_faults(command: Command) -> Iterator[str]:
    """Programs, words of the Makefile and of kube-rdma, and files that are not there."""
    try:
        words = shlex.shlex(command.text.replace("\\\n", " "), posix=True, punctuation_chars=True)
        words.whitespace_split = True
        listed = list(words)
    except ValueError as error:
        yield f"the shell cannot read it: {error}"
        return
    yield from _reader_faults(listed)
    for far, why in TOO_FAR.items():
        if re.search(f"(?<!lab ){far}", command.text):
            yield why
    for call in _calls(listed):
        yield from _program_faults(call)
    for word in listed:
        if word.startswith(TOPS) and not (ROOT / word).exists():
            yield f"there is no {word}"


def _reader_faults(listed: list[str]) -> Iterator[str]:
    """A reader that leaves early ends its writer by SIGPIPE, on a busy machine at the latest."""
    for bar, program, *rest in zip(listed, listed[1:], [*listed[2:], ""], strict=False):
        if bar == "|" and (program == "head" or (program == "grep" and rest[0].startswith("-q"))):
            yield f"`| {program}` leaves before its input ends, which ends the writer; read it all"


def _calls(words: list[str]) -> Iterator[list[str]]:
    """The simple commands of a line, without variables set before them and files behind `>`."""
    call: list[str] = []
    to_a_file = False
    for word in [*words, ";"]:
        if to_a_file:
            to_a_file = False
        elif set(word) <= set("<>&") and set(word) & set("<>"):
            to_a_file = True
        elif set(word) <= set("();|&"):
            if call:
                yield call
            call = []
        elif call or not re.match(r"\w+=", word):
            call.append(word)


def _program_faults(call: list[str]) -> Iterator[str]:
    program, *rest = call
    if program in OURS:
        yield from _unknown_word(rest)
    elif program == "make":
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        words = [word for word in rest if "=" not in word]
        yield from (
            f"the Makefile has no word {w}" for w in words if not re.search(rf"(?m)^{w}:", text)
        )
    elif program not in NO_FILE_HERE and not shutil.which(program, path=f"{BIN}:{os.defpath}"):
        yield f"there is no program {program}"


def _unknown_word(words: list[str]) -> Iterator[str]:
    """A word of kube-rdma that it does not have, however deep."""
    group: click.Command | None = cli
    path = "kube-rdma"
    for word in words:
        if not isinstance(group, click.Group) or word.startswith("-"):
            return
        with click.Context(group) as context:
            group = group.get_command(context, word)
        if group is None:
            yield f"{path} has no command {word}"
        path += f" {word}"
