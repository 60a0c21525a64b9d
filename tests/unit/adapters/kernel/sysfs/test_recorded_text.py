"""A recorded text in memory answers as the folder that is written of it; so it is no second survey.

The folder is read as the kernel walks (files.py): what the text says of links, places and errors is
compared with that, for every path of every machine and for paths that nobody has.
"""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kernel.sysfs.files import SysfsFiles
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText, read_entries
from kube_rdma.adapters.kernel.sysfs.topology_facts import facts_of
from kube_rdma.adapters.kernel.sysfs.tree import SysfsTree
from kube_rdma.hardware import machines
from kube_rdma.model.settings import PlacedNet
from kube_rdma_lab.native.tree_text import unpack

LINKS = """\
[devices/a]
file: text
loop -> loop
up -> /devices/a
here/
out -> ../../../elsewhere
[class]
a -> /devices/a
file -> /devices/a/file
gone -> /devices/gone
"""


def test_a_range_without_end_is_refused():
    with pytest.raises(ValueError, match="more than 4096 files"):
        list(read_entries("gids/{0..99999999999}: x"))


@pytest.fixture(scope="module", params=[*machines.names(), "links"])
def both(request, tmp_path_factory):
    """A text, and the files that the lab writes of it."""
    text = LINKS if request.param == "links" else machines.text_of(request.param)
    root = tmp_path_factory.mktemp(request.param)
    unpack(text, root)
    return RecordedText(request.param, text), SysfsFiles(root), root


def paths(text):
    """Every path of a text, and those above it."""
    named = {entry.path for entry in read_entries(text)}
    above = {posixpath.dirname(path) for path in named}
    return sorted(named | above | {posixpath.dirname(path) for path in above})


def answers(store, path):
    """What a store says of a path, errors by their number."""
    yield store.holds(path)
    for ask in (store.read, lambda of: sorted(store.names(of)), store.target, store.place):
        try:
            yield ask(path)
        except OSError as error:
            yield error.errno
    try:
        yield [
            (index, data.errno if isinstance(data, OSError) else data)
            for index, data in store.entries(path, (0, 3, 4096))
        ]
    except OSError as error:
        yield error.errno


def test_every_path_has_the_answers_of_the_folder(both):
    memory, files, _ = both
    every = paths(LINKS if memory.name == "links" else machines.text_of(memory.name))
    assert len(every) > 5
    for path in filter(None, every):
        inside = [path, f"{path}/nobody", f"{path}/../{posixpath.basename(path)}"]
        for one in inside:
            if posixpath.basename(path) != "out":
                assert [*answers(memory, one)] == [*answers(files, one)], one


def test_what_leads_out_of_a_tree_has_no_place():
    tree = SysfsTree(RecordedText("links", LINKS))
    assert tree.place("devices/a/out") is None
    assert [fault.reason for fault in tree.faults] == ["leads out of the tree"]


def test_the_survey_and_the_facts_of_ports_are_those_of_the_folder(both):
    memory, _, root = both
    survey = read_survey(memory)
    assert survey == read_survey(root)
    assert read_survey(memory, brief=True) == read_survey(root, brief=True)
    nets = [PlacedNet(one.name, one.position, one.numa_node) for one in survey.devices]
    assert facts_of(nets, memory) == facts_of(nets, root)


@given(st.lists(st.sampled_from(["class", "devices", "a", "up", "loop", "file", "..", ".", "x"])))
def test_no_path_makes_it_raise_anything_else_than_an_oserror(parts):
    for answer in answers(RecordedText("links", LINKS), "/".join(parts)):
        assert answer is None or isinstance(answer, bool | int | str | bytes | list)


def test_the_folder_of_the_root_is_listed():
    assert sorted(RecordedText("links", LINKS).names("")) == ["class", "devices"]
