"""What explain, verify, migrate, ip and config check show on terminals of 80 and 200 columns.

Pages go through the views that the commands use, and are set as for a terminal with colours. Made
anew by `python -m tests.unit.cli.test_folded_pages`, after a look at what changed.
"""

import re
from pathlib import Path

import pytest

from kube_rdma.cli.terminal import rendered
from kube_rdma.lib.page import Line, PageState, PageTable, page_text
from tests.unit.cli.folded import PAGES

FOLDER = Path(__file__).with_name("folded_pages")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
COLOURED = re.compile(r"\x1b\[[0-9;]*m(?P<text>[^\x1b]+)\x1b\[0m")
COLUMNS = (80, 200)
CASES = [(name, columns) for name in PAGES for columns in COLUMNS]


def on_terminal(name, columns):
    return rendered(PAGES[name](columns), columns, colour=True) + "\n"


def golden(name, columns):
    return FOLDER / f"{name}.{columns}.txt"


@pytest.mark.parametrize(("name", "columns"), CASES)
def test_a_page_on_a_terminal_is_the_one_that_was_looked_at(name, columns):
    assert on_terminal(name, columns) == golden(name, columns).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_only_lines_to_copy_are_wider_than_the_terminal(name):
    page = PAGES[name](80)
    copied = {
        line
        for block in page
        for part in block
        if isinstance(part, Line)
        for line in part.text.splitlines()
    }
    lines = ESCAPES.sub("", on_terminal(name, 80)).splitlines()
    assert {line for line in lines if len(line) > 80} <= copied


@pytest.mark.parametrize("name", PAGES)
def test_a_terminal_shows_every_word_that_a_pipe_gets(name):
    """Of another width, order and colour; a column that is too narrow breaks a word."""
    signs = sorted("".join(ESCAPES.sub("", on_terminal(name, 200)).split()))
    assert signs == sorted("".join(page_text(PAGES[name](200), 200).split()))


def test_a_colour_stands_on_a_mark_or_a_word():
    """Never on a whole line: what it says can be read without it."""
    for name in PAGES:
        for found in COLOURED.finditer(on_terminal(name, 80)):
            assert len(found["text"].split()) <= 2


def test_each_card_of_a_pool_has_the_colour_of_its_own_word():
    """A healthy card stands beside a bad one in the same row of the table."""
    states = (("yes", PageState.HEALTHY), ("no", PageState.UNHEALTHY))
    (table,) = (
        part
        for block in PAGES["config-check"](80)
        for part in block
        if isinstance(part, PageTable) and part.words
    )
    assert table.words == states
    text = on_terminal("config-check", 80)
    assert "\x1b[32myes\x1b[0m" in text
    assert "\x1b[1;31mno\x1b[0m" in text


def test_rows_that_come_one_by_one_stand_below_their_head():
    head, first, second = ESCAPES.sub("", on_terminal("verify-verbose", 80)).split("\n\n")
    assert first.index("node-0") == head.index("CLIENT")
    assert second.index("node-1") == head.index("SERVER")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each, width in CASES:
        golden(each, width).write_text(on_terminal(each, width))
