"""A recorded node as a text is the node: the survey and the doctor say the same of both."""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.adapters.kernel.link_view import recorded_links, recorded_routes
from kube_rdma.adapters.kernel.sysfs.pci_paths import acs_control
from kube_rdma.adapters.kernel.sysfs.record import record
from kube_rdma.adapters.kernel.sysfs.recorded_text import RecordedText, TextEntry, read_entries
from kube_rdma.doctor.beside_sysfs import write_beside_sysfs
from kube_rdma.doctor.recorded import observe_recorded
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.hardware import machines
from kube_rdma.model.doctor import Observation, ObservedErrors, ObservedFlowControl
from kube_rdma.model.finding import NotSeen
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_tools.machines.__main__ import PAGE, PLACE, add
from kube_rdma_tools.machines.text import text_of, text_of_folder
from tests.kit.pci_config import config
from tests.unit.adapters.kernel.sysfs.picture import TREES, promised


def recorded(name, tmp_path):
    """A machine as `devices --record` writes it down."""
    machine, to = tmp_path / "machine", tmp_path / "record"
    unpack(machines.text_of(name), machine)
    record(machine, partial(recorded_links, machine), partial(recorded_routes, machine), to)
    return to


BESIDE = Observation(
    "",
    errors=(ObservedErrors("mlx5_0", 1, 2.0, (("link_downed", 3),)),),
    flow_control=(ObservedFlowControl("ens1f0np0", (3,), "dscp"),),
    virtual_machine=False,
    not_seen=(NotSeen("statistics of interfaces", 'a "b" -> c\\n\n'),),
)


@pytest.mark.parametrize("name", machines.names())
def test_each_machine_that_is_recorded_and_made_a_text_is_the_same(name, tmp_path):
    folder = recorded(name, tmp_path)
    text, left_out = text_of_folder(folder)
    assert left_out == ()
    again = observe_recorded(name, RecordedText(name, text))
    assert again == observe_recorded(name, machines.machine(name))
    assert diagnose(again) == diagnose(observe_recorded(name, folder))


def test_what_is_no_file_of_sysfs_comes_along(tmp_path):
    folder = recorded("mlx5-bond", tmp_path)
    write_beside_sysfs(BESIDE, folder)
    again = observe_recorded("x", RecordedText("x", text_of_folder(folder)[0]))
    assert again == observe_recorded("x", folder)
    assert (again.errors, again.flow_control) == (BESIDE.errors, BESIDE.flow_control)
    assert set(BESIDE.not_seen) < set(again.not_seen)


SERIAL = 3  # PCI_EXT_CAP_ID_DSN


@pytest.mark.parametrize("control", [0, 0x1D, 0x5F, None])
def test_of_the_configuration_of_a_port_its_acs_is_taken_alone(control, tmp_path):
    machine = tmp_path / "bus/pci/devices/0000:00:01.0"
    machine.mkdir(parents=True)
    whole = config(control, ahead=(SERIAL,)).replace(bytes(8), b"\xc0\xff\xee\x11" * 2, 8)
    (machine / "config").write_bytes(whole)
    text, _ = text_of_folder(tmp_path)
    (entry,) = read_entries(text)
    assert acs_control(entry.content) == acs_control(whole) == (control or 0)
    assert "c0ffee11" not in text
    assert len(text) < 100


@pytest.mark.parametrize("kept", [64, 300])
def test_a_configuration_that_is_cut_short_is_left_out(kept, tmp_path):
    """Without CAP_SYS_ADMIN the kernel gives 64 bytes; nobody can judge what a part holds."""
    machine = tmp_path / "bus/pci/devices/0000:00:01.0"
    machine.mkdir(parents=True)
    (machine / "class").write_text("0x060400\n")
    (machine / "config").write_bytes(config(0, ahead=(SERIAL,))[:kept])
    text, _ = text_of_folder(tmp_path)
    (entry,) = read_entries(text)
    assert entry.path.endswith("/class")


NAMES = st.text("ab:-.>= \n{}/[]#", min_size=1, max_size=6)
ENTRIES = st.builds(
    lambda path, content, target: TextEntry(path, content, None if content is not None else target),
    st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    st.none() | st.binary(max_size=80) | st.text(max_size=20).map(str.encode),
    st.none() | NAMES,
)


@given(ENTRIES)
def test_an_entry_comes_back_or_is_named_as_left_out(entry):
    text, left_out = text_of(iter((entry,)))
    assert list(read_entries(text)) == ([] if left_out else [entry])
    assert left_out in ((), (entry.path,))


COMMAND = ".venv/bin/python -m kube_rdma_tools.machines my-card record"  # as the page has it


def test_the_command_of_the_page_adds_a_machine_with_its_tables(tmp_path):
    """Without the folder it writes the tables anew, and nothing else of the page."""
    recorded("mlx5-bond", tmp_path)
    place, program = tmp_path / PLACE / "my-card", [sys.executable, *shlex.split(COMMAND)[1:]]

    def run(*words):
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    said = f"{PLACE}/my-card/{PAGE}: correct what the tables show.\n"
    assert run(*program).stdout == said
    page = place / PAGE
    page.write_text(page.read_text().replace("WHICH CARD", "ConnectX-9").replace("| -", "| ?"))
    assert run(*program[:-1]).stdout == said
    assert promised(place) == promised(TREES / "mlx5-bond")
    assert "ConnectX-9" in page.read_text()
    assert run(*program).stderr.startswith(f"error: {PLACE}/my-card exists")


def test_what_is_no_record_and_what_no_line_can_name_is_said(tmp_path):
    place, folder = tmp_path / "trees", tmp_path / "record"
    with pytest.raises(Refused, match="is no recorded node"):
        add("new", tmp_path, place)
    with pytest.raises(Refused, match=r"tree\.txt is missing"):
        add("new", None, place)
    (folder / "class/net/a -> b").mkdir(parents=True)
    said = add("new", folder, place)
    assert said.endswith("Left out, for no line can name it: 'class/net/a -> b'")
