"""The draw of sentences that users see: every kind of text, the same for a seed, places."""

from collections import Counter

import pytest
import yaml
from click.testing import CliRunner

from .sentences import FEWEST, draw, main, of_file, page, sentences, split, values
from .tree import ROOT

PAGE = """\
# The title of a page with text
right below it, in one line.

One sentence that is
long. `code` begins the second of two! Short.
<!-- a comment that nobody sees on the page -->
- an item of a list that goes
  on below it
- **another** item of the list, with code `a b c d`

| a cell with five words or more | short |
|---|---|
| the next cell has (an aside.) Then it goes on further. | x |

```sh
a command that nobody reads as a sentence
```
"""


@pytest.fixture(scope="module")
def read():
    return sentences()


def test_every_kind_of_text_is_read(read):
    """And a sentence that several files have is there once."""
    kinds = Counter(sentence.scope for sentence in read)
    assert kinds.keys() == {"messages", "help", "definitions", "chart", "pages"}
    assert min(kinds.values()) > 10
    assert len({sentence.text for sentence in read}) == len(read)


def test_alerts_events_and_options_are_among_the_messages(read):
    files = {sentence.file for sentence in read if sentence.scope == "messages"}
    assert {
        "src/kube_rdma/rules/metrics/alerts.py",
        "src/kube_rdma/programs/agent/pod_networks/repair.py",
        "src/kube_rdma/programs/cli/explain.py",
    } <= files


def test_a_sentence_begins_in_the_line_of_its_place(read):
    """In a definition that is the line of the field's description."""
    pages = [sentence for sentence in read if sentence.scope == "pages"]
    for sentence in draw(pages, 7, 200):
        lines = (ROOT / sentence.file).read_text().splitlines()
        assert sentence.text.split()[0] in lines[sentence.line - 1], sentence.place
    for sentence in draw([one for one in read if one.scope == "definitions"], 7, 20):
        lines = (ROOT / sentence.file).read_text().splitlines()
        assert "description" in lines[sentence.line - 1], sentence.place


def test_a_seed_draws_the_same_and_another_seed_others(read):
    first, again, other = draw(read, 1, 50), draw(reversed(read), 1, 50), draw(read, 2, 50)
    assert first == again
    assert len(first) == 50
    assert len(set(first) & set(other)) < 10


def test_a_sentence_that_is_rewritten_leaves_the_others_of_a_draw_alone(read):
    drawn = draw(read, 1, 50)
    rewritten = [sentence for sentence in read if sentence != drawn[0]]
    assert set(drawn[1:]) < set(draw(rewritten, 1, 50))


def test_pages_are_read_as_paragraphs_items_and_cells():
    assert list(page(PAGE)) == [
        (1, "The title of a page with text"),
        (2, "right below it, in one line."),
        (4, "One sentence that is long."),
        (5, "`code` begins the second of two!"),
        (7, "an item of a list that goes on below it"),
        (9, "**another** item of the list, with code `a b c d`"),
        (11, "a cell with five words or more"),
        (13, "the next cell has (an aside.)"),
        (13, "Then it goes on further."),
    ]


def test_files_are_read_as_their_ending_says():
    notes = "{{- if .x }}\nThe agents of all nodes\nroll out {{ .y }} later.\n{{ end }}"
    assert list(of_file("a/NOTES.txt", notes)) == [(3, "The agents of all nodes roll out later.")]
    schema = '{"a": {"description": "a is the number of cards. Short."},\n "b": "text of no field"}'
    assert list(of_file("a.json", schema)) == [(1, "a is the number of cards.")]
    assert not list(of_file("a.svg", "<text>one two three four five six</text>"))
    node = yaml.compose("x:\n- description: >-\n    It is one long\n    sentence here.\n")
    assert list(values(node)) == [(2, "It is one long sentence here.")]
    assert not list(values(yaml.compose("")))


def test_what_is_no_sentence_is_left_out():
    """Names, paths, too few words."""
    assert FEWEST == 5
    assert not list(split("src/a/b.py x.y.z $A --b <c> four words of prose"))


def test_the_command_prints_places_and_how_many():
    result = CliRunner().invoke(main, ["--seed", "3", "--count", "4"])
    *lines, last = result.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.count(":") >= 2 for line in lines)
    assert last.startswith("4 of ")
    assert last.endswith("sentences, seed 3")
