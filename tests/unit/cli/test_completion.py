"""What a shell offers behind Tab, against an API server in memory."""

import os
import subprocess
import sys
from contextlib import asynccontextmanager

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from kube_base.errors import Unavailable
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.cli.main import COMMANDS, GROUPS, cli
from kube_rdma.cli.output import program
from kube_rdma.install.rules.presets import PRESETS
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.opener import opener_of

PLUGIN = """
import sys
from kube_rdma.cli import {module}
sys.argv = {argv!r}
{module}.{call}()
"""


@pytest.fixture
def server():
    made = FakeServer((NODE, POD))
    for name in ("node-10", "node-9", "gpu-1"):
        made.put(NODE, {"metadata": {"name": name}, "spec": {}})
    for namespace, name in (("default", "w-10"), ("default", "w-2"), ("train", "t-0")):
        pod = {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": []}}
        made.put(POD, pod)
    return made


def offered(server, *line):
    """What stands behind Tab at the end of a line."""
    *before, incomplete = line
    shell = ShellComplete(cli, {"obj": opener_of(server)}, "kube-rdma", "_X")
    return [item.value for item in shell.get_completions(before, incomplete)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("render", "--preset", "r"), [name for name in PRESETS if name.startswith("r")]),
        (("verify", "nodes", "n"), ["node-9", "node-10"]),
        (("verify", "pods", ""), ["w-2", "w-10"]),
        (("verify", "pods", "-n", "train", ""), ["t-0"]),
        (("doctor", "node/n"), ["node/node-9", "node/node-10"]),
        (("doctor", ""), ["node/gpu-1", "node/node-9", "node/node-10", "pod/w-2", "pod/w-10"]),
        (("explain", "pod/w-1"), ["pod/w-10"]),
        (("explain", "pod/train/"), ["pod/train/t-0"]),
        (("explain", "--node", "g"), ["gpu-1"]),
        (("migrate", "node", "g"), ["gpu-1"]),
        (("status", "-o", "y"), ["yaml"]),
        (("stat",), ["status"]),
    ],
)
def test_a_shell_offers_what_there_is(server, line, words):
    assert offered(server, *line) == words


def test_a_cluster_that_does_not_answer_offers_nothing():
    @asynccontextmanager
    async def opener(_):
        raise Unavailable("no way to it")
        yield

    shell = ShellComplete(cli, {"obj": opener}, "kube-rdma", "_X")
    assert shell.get_completions(["doctor"], "") == []


def as_plugin(module, call, *words):
    """The program in a process whose name is that of kubectl's plugin."""
    code = PLUGIN.format(module=module, call=call, argv=["/usr/bin/kubectl-rdma", *words])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_kubectl_gets_a_line_for_each_word_and_what_to_do_with_them():
    lines = as_plugin("completion", "of_kubectl", "render", "--preset", "n").stdout.splitlines()
    assert lines == [*(name for name in PRESETS if name.startswith("n")), ":4"]
    assert as_plugin("completion", "of_kubectl", "bundle", "").stdout == ":0\n"  # files


BASH = """
kube-rdma() { "$PYTHON" -m kube_rdma.cli.main "$@"; }
eval "$(_KUBE_RDMA_COMPLETE=bash_source kube-rdma)"
COMP_WORDS=(kube-rdma render --preset r)
COMP_CWORD=3
_kube_rdma_completion "$PROGRAM"
echo "${COMPREPLY[@]}"
complete -p kube-rdma
"""


def test_bash_takes_the_script_and_completes(tmp_path):
    """A real bash, with the script that docs/command-line.md writes."""
    program = tmp_path / "kube-rdma"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kube_rdma.cli.main "$@"\n')
    program.chmod(0o700)
    environment = {**os.environ, "PYTHON": sys.executable, "PROGRAM": str(program)}
    done = subprocess.run(
        ["bash", "-c", BASH], env=environment, capture_output=True, text=True, check=True
    )
    words, registered = done.stdout.splitlines()
    assert words.split() == [name for name in PRESETS if name.startswith("r")]
    assert registered == "complete -o nosort -F _kube_rdma_completion kube-rdma"


def test_the_plugin_of_kubectl_is_called_by_its_words():
    """In usage, hints and examples."""
    shown = as_plugin("main", "main", "status", "--help").stdout
    assert shown.startswith("Usage: kubectl rdma status [OPTIONS]\n")
    assert "  kubectl rdma status --problems-only\n" in shown
    assert "kube-rdma" not in shown
    wrong = as_plugin("main", "main", "statis")
    assert wrong.returncode == 2
    assert "Try 'kubectl rdma --help' for help." in wrong.stderr
    assert program() == "kube-rdma"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("statsu",), "Did you mean 'status'?"),
        (("verify", "node"), "Did you mean 'nodes'?"),
        (("status", "--problem-only"), "Did you mean '--problems-only'?"),
        (("laab",), "Did you mean 'lab'?"),
    ],
)
def test_a_wrong_word_gets_the_one_that_was_meant(words, hint):
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert hint in result.output


def test_each_command_stands_in_one_group_of_the_help():
    grouped = [name for _, names, _ in GROUPS for name in names]
    assert sorted(grouped) == sorted(COMMANDS)
    assert all(list(names) == sorted(names) for _, names, _ in GROUPS)
    shown = click.Context(cli, info_name="kube-rdma", terminal_width=80).get_help()
    for title, _, example in GROUPS:
        assert f"\n{title}:\n" in shown
        assert f"  Example: {example}\n" in shown
