"""Walking a page: every command in one shell, and its output as the page shows it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_lab.cluster import NO_CONDITIONS

from .on_lab import patient
from .pages import ROOT, Command, blocks, pages
from .rules import Runs, runs
from .shell import Failed, Shell, shows


@pytest.fixture
def shell():
    with Shell() as opened:
        yield opened


def command(text, shown=None):
    return Command("p.md", 7, text, shown)


def of_any_machine():
    """The pages with commands that need no lab."""
    for page, text in pages().items():
        listed = [block for block in blocks(page, text) if runs(block) is Runs.HERE]
        if listed:
            yield pytest.param(listed, id=page)


@pytest.mark.parametrize("listed", list(of_any_machine()))
def test_the_commands_of_a_page_run_as_written(listed, shell):
    shell.walk(command for block in listed for command in block.commands)


def test_commands_share_a_shell_in_the_root_and_read_nothing(shell):
    """Variables stay; a command that reads its input takes no command of ours."""
    shell.walk([command("export WORD=kept"), command("cat"), command("echo $WORD", "kept")])
    assert shell.run("pwd") == (0, f"{ROOT}\n")
    assert shell.run("command -v kube-rdma")[0] == 0


@pytest.mark.parametrize(
    ("text", "shown", "sentence"),
    [
        ("ls /nowhere", None, r"p.md:7: `ls /nowhere` ended with 2:\n.*/nowhere"),
        ("false | cat", None, "p.md:7: `false | cat` ended with 1"),
        ("echo 'open", None, "p.md:7: .* ended with [12]"),
        ("echo two", "one", r"p.md:7: `echo two` is shown with\none\nand printed\ntwo"),
        ("echo before; exit 3", None, r"ended the shell:\nbefore"),
    ],
)
def test_a_command_that_fails_is_named_with_its_place(shell, text, shown, sentence):
    with pytest.raises(Failed, match=sentence):
        shell.walk([command("true"), command(text, shown)])


LINES = st.lists(st.text("ab1… ", max_size=8))


@given(LINES)
def test_a_text_shows_itself(lines):
    """With or without placeholders, as they stand for themselves too."""
    assert shows("\n".join(lines), "\n".join(lines))


@given(st.lists(st.text("ab1", min_size=1)), st.lists(st.text("ab1", min_size=1), min_size=1))
def test_a_line_of_the_placeholder_stands_for_any_lines(lines, more):
    text = "\n".join([*lines, *more, *lines])
    assert shows("\n".join([*lines, "…", *lines]), text)
    assert not shows("\n".join([*lines, *lines]), text)


@pytest.mark.parametrize(
    ("page", "printed", "same"),
    [
        ("NODE  RDMA", "NODE      RDMA   ", True),
        ("node-1  …  1k", "node-1  Ready  1k", True),
        ("node-1  …  1k", "node-1  Ready  2k", False),
        ("a.c", "abc", False),
        ("a", "a\nb", False),
        ("a\n…", "a\nb\nc", True),
        ("one two", "onetwo", False),
    ],
)
def test_only_what_varies_may_differ(page, printed, same):
    assert shows(page, printed) is same


@pytest.mark.parametrize(
    ("pace", "text", "wanted"),
    [
        (4.9, "kubectl wait pod/a --timeout=10m", "kubectl wait pod/a --timeout=49m"),
        (1.3, "kubectl wait pod/a --timeout=5s && date", "kubectl wait pod/a --timeout=7s && date"),
        (0.5, "kubectl wait pod/a --timeout=1h", "kubectl wait pod/a --timeout=1h"),
        (9.0, "echo --timeout=10 --timeout=2mm 10m", "echo --timeout=10 --timeout=2mm 10m"),
    ],
)
def test_a_slow_lab_has_longer_for_what_a_page_waits_for(pace, text, wanted):
    assert patient(text, pace) == wanted


def test_a_wait_for_an_object_without_conditions_is_begun_anew(shell, tmp_path):
    """kubectl ends at once then, and a reader would enter the command again."""
    seen = tmp_path / "seen"
    once = f"test -e {seen} || {{ touch {seen}; echo '{NO_CONDITIONS}'; false; }}"
    assert shell.check(once) == ""
    with pytest.raises(Failed, match="accessor error"):  # also if none ever comes
        shell.check(f"echo '{NO_CONDITIONS}'; false")
