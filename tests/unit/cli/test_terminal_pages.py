"""Pages of `status`, `devices`, `doctor` and `resources` as a terminal of 80 columns shows them.

The real commands run on a pseudo-terminal with FORCE_COLOR.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.files import bundle
from kube_rdma.model.device import PhysicalState, PortState
from tests.kit.golden import assert_golden
from tests.kit.terminal import shown
from tests.unit.doctor.rules.healthy import HEALTHY, SURVEY

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGES = HERE / "terminal_pages"
COLUMNS = 80
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    "HOME": "/nonexistent",
    "PYTHONUTF8": "1",
    "TERM": "xterm",
}
FORCED = {"FORCE_COLOR": "1"}
PROGRAM = (sys.executable, "-m", "kube_rdma.cli.main")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
STATUS = """
from kube_rdma.cli.status import status
from tests.kit.opener import opener_of
from tests.unit.cli.test_status import World
world = World()
for number in (10, 9):
    world.node(f"node-{number}")
    world.program_pod(f"agent-{number}", "agent", f"node-{number}")
    world.report(f"node-{number}")
for node in ("node-10", "node-2"):
    world.report(node, "no port is ACTIVE; port 1 is DOWN (Polling): check the cable", healthy=0)
    world.node(node, "0")
status.main([], obj=opener_of(world.server))
"""
RESOURCES = """
from kube_rdma.cli.resources import resources
from tests.kit.opener import opener_of
from tests.unit.cli.test_resources import World
world = World()
world.server.forbidden |= {("list", "ippools"), ("watch", "ippools")}
resources.main([], obj=opener_of(world.server))
"""


def on_terminal(argv, columns=COLUMNS, **environment):
    return shown(argv, {**ENVIRONMENT, **environment}, columns)


def down(device):
    """The device with a port that has no signal."""
    states = {"state": PortState.DOWN, "physical_state": PhysicalState.POLLING}
    return replace(device, ports=tuple(replace(port, **states) for port in device.ports))


def page(name, folder):
    """What the terminal shows of a command; `folder` takes what it reads."""
    if name == "status":
        argv = (sys.executable, "-c", STATUS)
    elif name == "resources":
        argv = (sys.executable, "-c", RESOURCES)
    elif name == "devices":
        argv = (*PROGRAM, "devices", "--sysfs", "mlx5-bond")
    else:
        survey = replace(SURVEY, devices=tuple(map(down, SURVEY.devices)))
        bundle.write(replace(HEALTHY, survey=survey), folder / "node.json")
        argv = (*PROGRAM, "doctor", "--bundle", str(folder / "node.json"))
    return on_terminal(argv, **FORCED).text


NAMES = ("devices", "doctor", "resources", "status")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_on_a_terminal_is_the_one_that_was_looked_at(name, tmp_path):
    text = page(name, tmp_path)
    assert_golden(PAGES / f"{name}.txt", text)
    assert [line for line in ESCAPES.sub("", text).splitlines() if len(line) > COLUMNS] == []


DEVICES = (*PROGRAM, "devices", "--sysfs", "mlx5-bond")


def test_a_pipe_has_the_same_table_at_every_width_and_no_colour():
    """`cat` stands between the program and the terminal."""
    piped = [
        on_terminal(("sh", "-c", '"$@" | cat', "sh", *DEVICES), columns).text
        for columns in (40, 200)
    ]
    assert piped[0] == piped[1]
    assert not ESCAPES.search(piped[0])


@pytest.mark.parametrize(
    ("environment", "has_colour"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", **FORCED}, True),
        ({"NO_COLOR": "1", **FORCED}, False),
    ],
)
def test_variables_say_whether_there_is_colour(environment, has_colour):
    """no-color.org, force-color.org; words are the same with and without."""
    text = on_terminal(DEVICES, **environment).text
    assert bool(ESCAPES.search(text)) is has_colour
    assert ESCAPES.sub("", text) == ESCAPES.sub("", on_terminal(DEVICES).text)


def test_a_pipe_has_colour_where_it_is_forced():
    piped = ("sh", "-c", '"$@" | cat', "sh", *DEVICES)
    assert ESCAPES.search(on_terminal(piped, **FORCED).text)


def test_a_wide_table_is_neither_cut_nor_folded():
    text = ESCAPES.sub("", on_terminal((*DEVICES, "-o", "wide")).text)
    head = text.splitlines()[0]
    assert head.split()[-4:] == ["DRIVER", "FIRMWARE", "NODE", "GUID"]
    assert len(head) > COLUMNS
