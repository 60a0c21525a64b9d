"""The formats of lists: `-o json` and `yaml` say the same, `name` and `wide` are for people."""

import json

import pytest
import yaml
from click.testing import CliRunner

from kube_rdma.cli.devices import devices
from kube_rdma.cli.main import cli
from kube_rdma.cli.resources import resources
from kube_rdma.cli.status import status
from tests.kit.opener import opener_of
from tests.unit.cli import test_resources, test_status, test_top

DOWN = "no port is ACTIVE; port 1 is DOWN (Polling): check the cable"


def status_world():
    world = test_status.World()
    world.report("node-2", DOWN, healthy=0)
    return world


def run(command, *words, server=None):
    return CliRunner().invoke(command, words, obj=server and opener_of(server)).stdout


def status_of(*words):
    return run(status, *words, server=status_world().server)


def resources_of(*words):
    return run(resources, *words, server=test_resources.World().server)


def devices_of(*words):
    return run(devices, "--sysfs", "dgx-like", *words)


def top_of(*words):
    return test_top.World().run("pods", "-A", *words).stdout


def topology(*words):
    return devices_of("--topology", *words)


@pytest.mark.parametrize("command", [status_of, resources_of, devices_of, topology, top_of])
def test_yaml_says_what_json_says(command):
    """Rates of two looks differ; what they are of does not."""
    written = yaml.safe_load(command("-o", "yaml"))
    document = json.loads(command("-o", "json"))
    for rows in (written.get("rows", ()), document.get("rows", ())):
        for row in rows:
            row.update(dict.fromkeys(("receivedBytesPerSecond", "load", "errorsPerSecond")))
    assert written == document


@pytest.mark.parametrize(
    ("command", "words", "names"),
    [
        (status_of, (), ["node/node-2", "node/node-1"]),
        (status_of, ("--problems-only",), ["node/node-2"]),
        (resources_of, (), ["rdma/nic"]),
        (top_of, (), ["pod/ns/train-0", "pod/other/p"]),
    ],
)
def test_names_are_a_line_each(command, words, names):
    assert command(*words, "-o", "name").splitlines() == names


def test_names_of_devices_are_those_of_the_table():
    rows = devices_of().partition("\n\n")[0].splitlines()[1:]
    listed = [row.split()[0] for row in rows if not row.startswith(" ")]
    assert devices_of("-o", "name").splitlines() == listed


@pytest.mark.parametrize("command", [status_of, resources_of, devices_of])
def test_a_wide_page_has_all_that_the_table_has(command):
    assert set(command().split()) <= set(command("-o", "wide").split())


def test_a_wide_status_has_a_row_for_each_node():
    world = status_world()
    for number in range(3, 40):
        world.node(f"node-{number}")
        world.program_pod(f"agent-{number}", "agent", f"node-{number}")
        world.report(f"node-{number}")
    assert "alike" in run(status, server=world.server)
    page = run(status, "-o", "wide", server=world.server)
    assert "alike" not in page
    assert sum(f"  node-{number} " in page for number in range(1, 40)) == 39


@pytest.mark.parametrize(
    "words", [("--watch", "-o", "yaml"), ("--watch", "-o", "name"), ("--topology", "-o", "wide")]
)
def test_a_format_that_makes_no_sense_is_refused_in_one_sentence(words):
    result = CliRunner().invoke(devices, words)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: {words[0]} prints ")


def test_an_error_is_yaml_where_yaml_was_asked_for(tmp_path):
    words = ["status", "--kubeconfig", str(tmp_path / "none"), "-o", "yaml"]
    error = yaml.safe_load(CliRunner().invoke(cli, words).stdout)["error"]
    assert (error["exitCode"], error["where"]) == (3, str(tmp_path / "none"))
