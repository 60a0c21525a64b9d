"""`kube-rdma devices` from the outside: what it prints and how it exits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.cli.devices import devices
from kube_rdma_lab.native.tree_text import unpack
from tests.kit.nccl_xml import read

TREES = Path(__file__).parents[2] / "data/trees"


@pytest.fixture(scope="module")
def mlx5(tmp_path_factory):
    root = tmp_path_factory.mktemp("mlx5")
    unpack((TREES / "mlx5-dual-port/tree.txt").read_text(), root)
    return root


@pytest.fixture(scope="module")
def rxe(tmp_path_factory):
    root = tmp_path_factory.mktemp("rxe")
    unpack((TREES / "rxe-two/tree.txt").read_text(), root)
    return root


def run(*arguments):
    return CliRunner().invoke(devices, [str(a) for a in arguments])


MLX5 = """\
DEVICE  PORT  STATE   LINK      RATE  NETDEV         NUMA  PCI           GIDS  USABLE
mlx5_0     1  ACTIVE  Ethernet  100G  enp129s0f0np0     1  0000:81:00.0     5  yes
mlx5_1     1  DOWN    Ethernet   40G  enp129s0f1np1     1  0000:81:00.1     2  no
  └ no port is ACTIVE; port 1 is DOWN (Disabled): ip link set enp129s0f1np1 up

1 of 2 devices usable.
RDMA namespace mode: unknown.
"""


def test_the_table_of_a_dual_port_card(mlx5):
    result = run("--sysfs", mlx5)
    assert result.output == MLX5
    assert result.exit_code == 0


def test_the_topology_as_a_matrix_and_in_the_document(mlx5):
    shown = run("--topology", "--sysfs", mlx5)
    assert shown.output.startswith("      NIC0  NIC1  NUMA Affinity\nNIC0   X    PIX   1\n")
    assert shown.exit_code == 0
    document = json.loads(run("--topology", "-o", "json", "--sysfs", mlx5).output)
    assert document["topology"]["nearness"]["NIC1"]["NIC0"] == "PIX"
    assert len(document["devices"]) == 2
    assert "topology" not in json.loads(run("-o", "json", "--sysfs", mlx5).output)


def test_a_soft_device_sits_where_its_parent_does_in_nccl_s_file(rxe):
    top = read(run("--topology", "-o", "nccl", "--sysfs", rxe).output)
    placed = {net.attributes["name"]: net.way() for net in top.all("net")}
    assert placed == {"rxe0": ("0", "0000:00:03.0"), "rxe1": ("1", "0000:36:00.0")}


def test_a_recorded_tree_shows_the_same(mlx5, tmp_path):
    copy = tmp_path / "copy"
    recorded = run("--record", copy, "--sysfs", mlx5)
    assert recorded.exit_code == 0
    assert recorded.output.endswith(f" files; kube-rdma devices --sysfs {copy} shows them.\n")
    assert run("--sysfs", copy).output == MLX5


def test_a_running_node_can_be_recorded(tmp_path):
    copy = tmp_path / "copy"
    assert run("--record", copy).exit_code == 0
    assert (copy / "class").is_dir()


def test_recording_into_a_folder_with_something_in_it_is_refused(mlx5, tmp_path):
    (tmp_path / "mine").touch()
    error = run("--record", tmp_path, "--sysfs", mlx5).exception
    assert isinstance(error, Refused)
    assert str(error).startswith(f"--record: {tmp_path} exists and is not empty. ")


def test_watching_a_tree_is_refused(mlx5):
    error = run("--watch", "--sysfs", mlx5).exception
    assert isinstance(error, Refused)
    assert "Leave --sysfs out" in error.remedy


@pytest.mark.parametrize(
    "options",
    [
        ["--topology", "--watch"],
        ["--watch", "--record", "x"],
        ["--topology", "-o", "ibdev2netdev"],
        ["-o", "nccl"],
        ["--watch", "-o", "nccl"],
        ["--record", "x", "-o", "json"],
    ],
)
def test_options_that_exclude_each_other_are_a_usage_error(options):
    result = run(*options)
    assert result.exit_code == 2
    assert "Error: --" in result.output


def test_a_node_without_a_usable_device_exits_with_1(tmp_path):
    (tmp_path / "class").mkdir()
    result = run("--sysfs", tmp_path)
    assert result.exit_code == 1
    assert result.output.startswith("No RDMA devices.")
    assert json.loads(run("-o", "json", "--sysfs", tmp_path).output)["devices"] == []


@pytest.mark.parametrize("there", [True, False])
def test_what_is_no_sysfs_tree_is_refused_with_a_remedy(tmp_path, there):
    sysfs = tmp_path if there else tmp_path / "nowhere"
    error = run("--sysfs", sysfs).exception
    assert isinstance(error, Refused)
    assert "no folder named class" in error.problem
    assert "class/infiniband" in error.remedy


def test_the_installed_command_refuses_with_one_sentence_and_exit_code_3(tmp_path):
    command = [sys.executable, "-m", "kube_rdma.cli.main", "devices", "--sysfs"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("kube-rdma: --sysfs: ")


def test_nothing_heavy_is_imported():
    """The start-up budget: what a survey does not need must not be loaded by it."""
    script = (
        "import sys, kube_rdma.cli.devices\n"
        "print([m for m in ('pydantic', 'rich', 'asyncio', 'yaml', 'grpclib', 'google.protobuf')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
