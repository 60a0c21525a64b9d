"""What explain, verify, migrate, ip and config check show on terminals of 80 and 200 columns.

Pages go through the views that the commands use, and are set as for a terminal with colours.
"""

import re
from pathlib import Path

import pytest

from kube_rdma.cli.terminal import rendered
from kube_rdma.lib.page import Line, page_text
from tests.kit.golden import assert_golden
from tests.unit.cli.folded import PAGES

FOLDER = Path(__file__).with_name("folded_pages")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
COLUMNS = (80, 200)
CASES = [(name, columns) for name in PAGES for columns in COLUMNS]


def on_terminal(name, columns):
    return rendered(PAGES[name](columns), columns, colour=True) + "\n"


@pytest.mark.parametrize(("name", "columns"), CASES)
def test_a_page_on_a_terminal_is_the_one_that_was_looked_at(name, columns):
    assert_golden(FOLDER / f"{name}.{columns}.txt", on_terminal(name, columns))


@pytest.mark.parametrize("name", PAGES)
def test_only_lines_to_copy_are_wider_than_the_terminal(name):
    copied = {
        line
        for block in PAGES[name](80)
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
