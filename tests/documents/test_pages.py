"""Reading pages: what is a block, what is a command, and what every page keeps to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .pages import blocks, pages
from .rules import Runs, faults, runs

PAGE = """\
# Title

<!-- run: here -->
```sh
# a comment, then a command with one behind it
echo one   # said
echo two |
    cat

echo three \\
  four
```

```console
three four
```

Text.

```yaml
a: b
```
"""


def test_blocks_have_place_language_marker_and_output():
    first, shown, document = blocks("p.md", PAGE)
    assert (first.place, first.language, first.marker) == ("p.md:5", "sh", "run: here")
    assert first.shown == shown.text == "three four"
    assert (document.language, document.marker, document.text) == ("yaml", "", "a: b")
    assert runs(first) is Runs.HERE


def test_commands_have_their_lines_and_the_last_one_the_output():
    (block, *_) = blocks("p.md", PAGE)
    read = [(command.line, command.text, command.shown) for command in block.commands]
    assert read == [
        (6, "echo one   # said", None),
        (7, "echo two |\n    cat", None),
        (10, "echo three \\\n  four", "three four"),
    ]


WORDS = st.text("ab -", min_size=1).filter(lambda text: text.strip() and not text.startswith("#"))


@given(st.lists(st.tuples(st.sampled_from(["sh", "json", "text"]), st.lists(WORDS, min_size=1))))
def test_every_line_between_fences_is_read_once(written):
    """Whatever stands in blocks comes out, in order; of commands, every line."""
    parts = [f"```{language}\n" + "\n".join(lines) + "\n```\n" for language, lines in written]
    read = blocks("p.md", "Text.\n\n".join(parts))
    assert [(block.language, block.text.splitlines()) for block in read] == written
    for block in read:
        if block.language == "sh":
            assert [command.text for command in block.commands] == block.text.splitlines()


def test_every_page_keeps_to_the_rules():
    """Each block of commands says who runs it, and names what there is."""
    named = pages()
    assert {"README.md", "CONTRIBUTING.md", "docs/lab.md", "examples/README.md"} < named.keys()
    wrong = [fault for page, text in named.items() for fault in faults(blocks(page, text))]
    assert not wrong, "\n" + "\n".join(wrong)


def fenced(language, text, marker=""):
    return f"{marker}\n```{language}\n{text}\n```\n"


HERE = "<!-- run: here -->"


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("Text:\n\n    kube-rdma lab up\n", "p.md:3: a block is indented"),
        (fenced("", "x"), "p.md:3: a block is ''; its fence says one of console, json, sh"),
        (fenced("text", "kube-rdma lab up"), "p.md:3: a command stands in a block of text"),
        (fenced("text", "  $ make demo"), "p.md:3: a command stands in a block of text"),
        (fenced("console", "x"), "p.md:3: output stands behind no command"),
        (fenced("sh", "true"), "p.md:3: the marker '' does not say who runs it"),
        (fenced("sh", "true", "<!-- run: never -->"), "p.md:3: the marker 'run: never' does not"),
        (fenced("sh", "true", "<!-- not run: no -->"), "p.md:3: the marker says no reason"),
        (fenced("sh", "true", "<!-- run by: gone.py -->"), "p.md:3: there is no file 'gone.py'"),
        (fenced("sh", "make tea", "<!-- run by: Makefile -->"), "p.md:3: Makefile does not run"),
        (fenced("sh", "make tea", HERE), "p.md:3: the Makefile has no word tea"),
        (fenced("sh", "true\nX=1 kube-rdma fly", HERE), "p.md:4: kube-rdma has no command fly"),
        (fenced("sh", "kube-rdma lab fly", HERE), "p.md:3: kube-rdma lab has no command fly"),
        (fenced("sh", "true | (no-such-program)", HERE), "p.md:3: there is no program no-such"),
        (fenced("sh", "cat examples/gone.yaml", HERE), "p.md:3: there is no examples/gone.yaml"),
        (fenced("sh", "kubectl get x | head -n 1", HERE), "p.md:3: `| head` leaves before its"),
        (fenced("sh", "kubectl get x | grep -q y", HERE), "p.md:3: `| grep` leaves before its"),
        (fenced("sh", "kubectl wait node --all", HERE), "p.md:3: it takes nodes without cards"),
        (fenced("sh", "kubectl label nodes --all a=b", HERE), "p.md:3: it takes nodes without"),
        (fenced("sh", "kubectl label node a b=c --overwrite", HERE), "p.md:3: it overwrites what"),
        (fenced("sh", "kubectl get pods | grep node-debugger-", HERE), "p.md:3: it takes debug"),
        (fenced("sh", "echo 'open", HERE), "p.md:3: the shell cannot read it"),
    ],
)
def test_a_planted_fault_is_found(page, fault):
    """And nothing else is."""
    (sentence, *others) = faults(blocks("p.md", page))
    assert sentence.startswith(fault)
    assert not [other for other in others if "has no word" not in other]


def test_a_page_without_faults_has_none():
    assert not list(faults(blocks("p.md", PAGE)))
