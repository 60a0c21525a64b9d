"""No text from outside ends a line, moves a terminal's cursor or is a word of a shell.

Values are those that an API server stores: an image, a kubelet's version, an annotation and a
condition's message are any text.
"""

import json
import re
import shlex

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kube_base.frozen import replace
from kube_base.plain_text import plain
from kube_rdma.cli.output import document_text
from kube_rdma.cli.terminal import rendered
from kube_rdma.install.views import manifests
from kube_rdma.lib.page import (
    Line,
    PageList,
    PageRow,
    PageState,
    PageTable,
    Sentence,
    lines_of,
    page_text,
    shortened,
)
from kube_rdma.migrate.rules.node import plan_node
from kube_rdma.migrate.rules.plan import plan
from kube_rdma.migrate.views import node_plan_page, plan_page
from kube_rdma.model.migrate import MigratingNode, MigrationOptions, ServingView
from tests.unit.migrate.rules.views import starts

CONTROLS = [
    "\n",
    "\r",
    "\t",
    "\x1b[2J",
    "\x07",
    "\x7f",
    "\x85",
    "\x9b",
    "\u2028",
    "\u202e",
    "\u2066",
]
SHELL = ["; touch PWNED", "$(touch PWNED)", "`touch PWNED`", "'", '"', "\\", "#", "\ntouch PWNED #"]
outside = st.lists(st.sampled_from([*CONTROLS, *SHELL, "v1", " ", "ü", "网"]), max_size=6).map(
    "".join
)

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
STATES = st.sampled_from(PageState)


def rows(columns):
    cells = st.tuples(*[outside] * columns)
    notes = st.lists(outside, max_size=2).map(tuple)
    return st.builds(PageRow, cells, STATES, st.lists(cells, max_size=2).map(tuple), notes)


tables = st.builds(
    PageTable,
    st.just(("NAME", "STATE")),
    st.lists(rows(2), max_size=3).map(tuple),
    spare=st.sampled_from([(), ("STATE",)]),
    whole=st.booleans(),
)
lists = st.builds(
    PageList,
    st.lists(st.builds(PageRow, st.tuples(outside)), min_size=1, max_size=2).map(tuple),
    st.just("    "),
)
sentences = st.builds(Sentence, outside, state=STATES, loose=st.booleans())
pages = st.lists(
    st.lists(tables | lists | sentences | st.builds(Line, outside, STATES), max_size=3), max_size=2
)


@given(pages, st.integers(40, 120))
def test_each_page_is_printable(page, width):
    """Colours are the page's own; all else that a terminal acts on is replaced."""
    for text in (page_text(page, width), COLOURS.sub("", rendered(page, width, colour=True))):
        assert all(line.isprintable() for line in text.split("\n"))


@given(outside)
def test_a_value_is_one_line_of_a_page(value):
    """What is never wrapped is one line whatever it says, and so is the row of a table."""
    for part in (
        Line(value),
        Sentence(value, loose=True),
        PageTable(("A", "B"), (PageRow((value, "x")),), whole=True),
    ):
        lines = page_text(((part,),), 100).split("\n")
        assert len(lines) == (2 if isinstance(part, PageTable) else 1)


@given(st.lists(outside, min_size=1, max_size=4), st.integers(1, 30))
def test_wide_signs_shift_no_column(names, room):
    """Counted as a terminal does, whether a cell is cut or not."""
    names = [shortened(plain(name), room) for name in names]
    assert all(cell_len(name) <= room for name in names)
    table = PageTable(("A", "B"), tuple(PageRow((name, "|")) for name in names), whole=True)
    _, *lines = page_text(((table,),), 100).split("\n")
    assert len({cell_len(line.rpartition("|")[0]) for line in lines}) == 1


@given(outside)
def test_documents_and_manifests_are_printable_and_mean_the_same(value):
    document = {"a": value, "b": [value]}
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        text = document_text(document, output)
        assert all(line.isprintable() for line in text.split("\n"))
        assert read(text) == document
    text = manifests([document])
    assert all(line.isprintable() or "\t" in value for line in text.split("\n"))
    assert yaml.safe_load(text) == document


def commented(page, steps):
    """The lines of a printed script that are no comment; those of its commands are checked."""
    commands = [
        line
        for step in steps
        for part in lines_of("\n".join(step.commands))
        for line in [part.text]
    ]
    lines = [line for line in page_text(page, 100).split("\n") if line and not line.startswith("#")]
    assert lines == [line for line in commands if line and not line.startswith("#")]
    return lines


@pytest.mark.parametrize("start", starts())
@given(value=outside)
def test_a_plan_has_only_its_commands_and_comments(start, value):
    """An image, a warning of a ConfigMap and a sentence about what was not read are comments."""
    view = starts()[start]
    (plugin,) = view.plugins
    pod = plugin.pod | {
        "containers": [one | {"image": f"x{value}"} for one in plugin.pod["containers"]]
    }
    plugin = replace(plugin, spec=plugin.spec | {"template": {"spec": pod}})
    configs = {key: replace(one, warnings=(value,)) for key, one in view.configs.items()}
    view = replace(view, plugins=(plugin,), configs=configs, unread=(f"Not read: {value}",))
    made = plan(view, MigrationOptions(image="reg.example.com/a:1"))
    commented(plan_page(made), (*made.steps, *made.back))


@given(value=outside)
def test_a_nodes_plan_has_only_its_commands_and_comments(value):
    """A kubelet's own credential writes its version and what its node offers."""
    node = MigratingNode("node-1", {"rdma/hca": f"10{value}"})
    view = ServingView(node, f"v1.36.0{value}", ("rdma/hca",), frozenset(), {"rdma/hca": "c"}, True)
    made = plan_node(view)
    commented(node_plan_page(made), (*made.steps, *made.back))


@pytest.mark.parametrize("value", ["$(touch PWNED)", "x; touch PWNED", "a'b", "\ntouch PWNED #"])
def test_a_quantity_of_a_node_is_one_word_of_a_command(value):
    view = starts()["shared-plugin"]
    offered = {name: value for node in view.nodes for name in node.offered}
    view = replace(view, nodes=tuple(replace(one, offered=offered) for one in view.nodes))
    made = plan(view, MigrationOptions(image="reg.example.com/a:1"))
    waits = [one for step in made.steps for one in step.commands if value in shlex.split(one)[-1]]
    assert waits
    for command in waits:
        assert shlex.split(command)[-1].endswith(f"={value}")
