"""What a terminal shows of any page: nothing wider than it is, nothing lost, the worst first."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kube_base.natural import natural
from kube_rdma.cli.terminal import column_widths, rendered
from kube_rdma.lib.page import (
    GAP,
    Line,
    PageRow,
    PageState,
    PageTable,
    Sentence,
    page_text,
    state_of,
    widened,
)

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
NARROW, BROAD = 40, 120
RANKS = {"✗": 0, "!": 1, "?": 2}
CELLS = st.text("ab1 -/:×✓語", max_size=60).map(lambda text: " ".join(text.split()))
WORDS = st.text("abc ", min_size=1, max_size=200).map(lambda text: " ".join(text.split()) or "a")
WIDTHS = st.integers(NARROW, BROAD)


@st.composite
def tables(draw):
    """A table with rows of several lines, with notes, and columns that end at their edge."""
    count = draw(st.integers(1, 8))
    cells = st.tuples(*[CELLS] * count)
    rows = st.builds(
        PageRow,
        cells,
        st.sampled_from(PageState),
        st.lists(cells, max_size=2).map(tuple),
        st.lists(WORDS, max_size=2).map(tuple),
    )
    return PageTable(
        tuple("ABCDEFGH"[:count]),
        tuple(draw(st.lists(rows, min_size=1, max_size=5))),
        tuple(draw(st.sets(st.integers(0, count - 1)))),
        draw(st.integers(0, count - 1)),
    )


def shown(page, width, *, colour=False):
    return ESCAPES.sub("", rendered(page, width, colour=colour))


def columns_of(text):
    """The width of a line on a terminal: Chinese signs take two columns."""
    return sum(1 + (sign == "語") for sign in text)


def signs(table):
    """What stands in a table, sign by sign."""
    lines = [table.head, *(line for row in table.rows for line in (row.cells, *row.parts))]
    every = "".join(cell for line in lines for cell in line)
    marks = "└" * sum(len(row.notes) for row in table.rows)
    notes = "".join(note for row in table.rows for note in row.notes)
    return sorted(f"{every}{marks}{notes}".replace(" ", ""))


@given(tables(), WIDTHS)
def test_no_line_of_a_table_is_wider_than_the_terminal(table, width):
    notes = (note for row in table.rows for note in row.notes)
    words = max((len(word) for note in notes for word in note.split()), default=0)
    for line in shown(((table,),), width).splitlines():
        assert columns_of(line) <= max(width, words + len("  └ "))


@given(tables(), WIDTHS, st.booleans())
def test_no_sign_of_a_cell_is_lost(table, width, colour):
    assert sorted(re.sub(r"\s", "", shown(((table,),), width, colour=colour))) == signs(table)


@given(tables())
def test_a_wide_table_has_a_line_for_each_of_its_own(table):
    """However long its cells are."""
    lines = 1 + sum(1 + len(row.parts) for row in table.rows)
    bare = PageTable(table.head, tuple(PageRow(row.cells, parts=row.parts) for row in table.rows))
    text = rendered(widened(((bare,),)), NARROW, colour=False)
    assert len(text.split("\n")) <= lines  # a last line without a sign is no line


@given(tables(), WIDTHS)
def test_colour_changes_no_sign(table, width):
    page = ((table,), (Sentence("✗ It is broken. " * 9, "    ", PageState.UNHEALTHY),))
    plain = rendered(page, width, colour=False)
    assert "\x1b" not in plain
    assert shown(page, width, colour=True) == plain


@given(st.lists(st.tuples(st.sampled_from("✗!?✓-"), st.text("ab019-", min_size=1, max_size=8))))
def test_what_is_unhealthy_stands_first_and_names_are_in_natural_order(pairs):
    rows = tuple(PageRow(pair, state_of(pair[0])) for pair in pairs)
    lines = shown(((PageTable(("", "NAME"), rows),),), BROAD).splitlines()[1:]
    names = [tuple(line.split()) for line in lines]
    marks = [mark for mark, _ in names]
    assert marks == sorted(marks, key=lambda mark: RANKS.get(mark, len(RANKS)))
    for mark in RANKS:
        of_mark = [name for own, name in names if own == mark]
        assert of_mark == sorted(of_mark, key=natural)


def test_a_ranking_keeps_its_order():
    rows = (PageRow(("b",), PageState.HEALTHY), PageRow(("a",), PageState.UNHEALTHY))
    assert shown(((PageTable(("NODE",), rows, ranked=True),),), 80).split() == ["NODE", "b", "a"]


@given(st.lists(st.lists(CELLS, min_size=4, max_size=4), min_size=1, max_size=6), WIDTHS)
def test_columns_fill_the_terminal_only_if_they_have_to(rows, width):
    columns = column_widths([("A", "B", "C", "D"), *rows], width)
    whole = column_widths([("A", "B", "C", "D"), *rows], 1000)
    used = sum(columns) + len(GAP) * 3
    assert used == min(width, sum(whole) + len(GAP) * 3)
    assert all(now <= full for now, full in zip(columns, whole, strict=True))


def test_words_are_broken_only_where_blanks_are_not_enough():
    cells = [("NAME", "WHY"), ("mlx5_bond_0", "no port is ACTIVE on any of its rails")]
    assert column_widths(cells, 30)[0] == len("mlx5_bond_0")
    assert column_widths(cells, 20) == [11, 7]


def test_no_column_is_too_narrow_for_a_chinese_sign():
    cells = ("1" * 30, "1111111語語", *"12345")
    page = ((PageTable(tuple("ABCDEFG"), (PageRow(cells),)),),)
    assert shown(page, NARROW).count("語") == 2
    assert min(column_widths([tuple("ABCDEFG"), cells], 24)[:2]) == 2


def test_what_is_alike_is_a_sentence_where_there_is_no_room():
    rows = tuple(PageRow((f"node-{n}", "0.1.0" * 9)) for n in range(3))
    page = ((PageTable(("NODE", "VERSION"), rows, spare=("VERSION",)),),)
    assert f"In all rows: VERSION {'0.1.0' * 9}." in " ".join(shown(page, NARROW).split())
    assert shown(page, BROAD) == page_text(page, BROAD)


def test_strangers_words_move_no_cursor():
    """Of cells, notes, sentences and titles."""
    evil = "a\x1b[2Jb"
    table = PageTable(("NAME",), (PageRow((evil,), notes=(evil,)),))
    page = ((table, Sentence(evil), Line(evil)),)
    text = rendered(page, 80, colour=False)
    assert text.count("a?[2Jb") == 4
    assert "\x1b" not in text


def test_markup_of_rich_is_text():
    assert "[red]x[/red] :smile:" in rendered(((Line("[red]x[/red] :smile:"),),), 80, colour=True)
