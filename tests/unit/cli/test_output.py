"""What goes wrong at the end of a command is a sentence, and no result is lost with it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.errors import Broken, Refused, Unavailable
from kube_rdma.cli.main import cli
from kube_rdma.cli.output import MEANINGS, ExitCode, error_document, exit_code

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


def test_an_error_is_a_document_where_json_was_asked_for(tmp_path):
    words = ["status", "--kubeconfig", str(tmp_path / "none"), "-o", "json"]
    result = CliRunner().invoke(cli, words)
    error = json.loads(result.stdout)["error"]
    assert error["exitCode"] == 3
    assert error["where"] == str(tmp_path / "none")
    assert "cannot read the kubeconfig" in error["message"]


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
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^ +{int(code)} +{re.escape(meaning[:20])}", shown, re.MULTILINE)
        assert f"| {int(code)} | {meaning} |" in page
