"""What goes wrong at the end of a command is a sentence, and no result is lost with it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma.cli.devices import devices
from kube_rdma.cli.main import cli
from kube_rdma.cli.output import MEANINGS, ExitCode, error_document, exit_code
from kube_rdma.cli.resources import resources
from kube_rdma.cli.status import status
from tests.kit.opener import opener_of
from tests.unit.cli import test_resources, test_status, test_top

ROOT = Path(__file__).parents[3]
MAIN = (sys.executable, "-m", "kube_rdma.cli.main")
KEEP = "import sys; from kube_rdma.cli import output, main; output.keep('the figures')"


def run(*argv, **more):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "KUBECONFIG": "/nowhere/x"}
    return subprocess.run(
        argv, text=True, stderr=subprocess.PIPE, check=False, env=environment, **more
    )


def test_a_result_that_its_place_does_not_take_is_kept_and_it_is_told_where(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = run(sys.executable, "-c", KEEP, stdout=full, cwd=tmp_path)
    (kept,) = tmp_path.glob("kube-rdma-*.txt")
    assert kept.read_text() == "the figures"
    assert f"The result is kept in {kept}." in done.stderr


@pytest.mark.parametrize("closed", [False, True])
def test_a_full_disk_and_a_closed_output_are_sentences(closed):
    command = (*MAIN, "status", "-h")
    with Path("/dev/full").open("w") as full:
        words = ("sh", "-c", 'exec "$@" >&-', "sh", *command) if closed else command
        done = run(*words, stdout=full)
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if closed else ExitCode.UNAVAILABLE)
    assert closed or done.stderr == "kube-rdma: No space left on device.\n"


def test_a_reader_that_has_gone_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = run(*MAIN, "config", "schema", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--kubeconfig", "{}", "-o", "json"],
        ["status", "-o", "json", "--kubeconfig", "{}"],
        ["why", "pod/a", "--kubeconfig", "{}", "--json"],
        ["why", "--json", "pod/a", "--kubeconfig", "{}"],
    ],
)
def test_an_error_is_a_document_where_json_was_asked_for(tmp_path, words):
    words = [word.format(tmp_path / "none") for word in words]
    error = json.loads(CliRunner().invoke(cli, words).stdout)["error"]
    assert error["exitCode"] == 3
    assert error["where"] == str(tmp_path / "none")
    assert "cannot read the kubeconfig" in error["message"]


@pytest.mark.parametrize("words", [["doctor"], ["devices"], ["config", "check", "{}"]])
def test_an_option_that_is_refused_before_the_format_is_a_document_too(tmp_path, words):
    path = tmp_path / "pools.json"
    path.write_text("{}")
    words = [word.format(path) for word in (*words, "--sysfs", "nosuch", "-o", "json")]
    done = CliRunner().invoke(cli, words)
    assert "nosuch" in json.loads(done.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("x", remedy="y"), 3),
        (Unavailable("x"), 4),
        (Broken("x"), 5),
        (OSError(28, "No space left on device", "today.json"), 4),
    ],
)
def test_each_error_has_its_code(error, code):
    assert exit_code(error) == code == error_document(error)["error"]["exitCode"]


def test_help_and_the_page_have_the_same_codes():
    shown = CliRunner().invoke(cli, ["--help"]).output
    page = (ROOT / "docs" / "command-line.md").read_text()
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^ +{int(code)} +{re.escape(meaning[:20])}", shown, re.MULTILINE)
        assert f"| {int(code)} | {meaning} |" in page


# The formats of lists: `-o json` and `yaml` say the same, `name` and `wide` are for people.

DOWN = "no port is ACTIVE; port 1 is DOWN (Polling): check the cable"


def status_world():
    world = test_status.World()
    world.report("node-2", DOWN, healthy=0)
    return world


def printed(command, *words, server=None):
    return CliRunner().invoke(command, words, obj=server and opener_of(server)).stdout


def status_of(*words):
    return printed(status, *words, server=status_world().server)


def resources_of(*words):
    return printed(resources, *words, server=test_resources.World().server)


def devices_of(*words):
    return printed(devices, "--sysfs", "dgx-like", *words)


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
    assert "alike" in printed(status, server=world.server)
    page = printed(status, "-o", "wide", server=world.server)
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
