"""`kube-rdma nccl-env`: the script of containers, run or printed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kube_rdma.adapters.runtime.settings import NCCL_ENV
from tests.unit.adapters.runtime.test_nccl_env import two


def run(*words):
    command = Path(sys.executable).with_name("kube-rdma")
    return subprocess.run([command, *words], capture_output=True, text=True, check=False)


@pytest.fixture
def root(tmp_path):
    two(3, 3).write(tmp_path)
    return tmp_path


def test_it_prints_what_the_script_finds(root):
    done = run("nccl-env", "--format", "json", "--root", str(root))
    assert json.loads(done.stdout)["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1"
    done = run("nccl-env", "--vke", "--root", str(root))
    assert done.stdout == ("export NCCL_IB_HCA='mlx5_0:1,mlx5_1:1'\nexport NCCL_IB_GID_INDEX='3'\n")


def test_the_older_name_of_an_option_is_read(root):
    """--strict-seed, in images of their own that people built before."""
    older = run("nccl-env", "--strict-seed", "--root", str(root))
    assert older.stdout == run("nccl-env", "--vke", "--root", str(root)).stdout


def test_without_a_device_it_exits_with_1(tmp_path):
    done = run("nccl-env", "--root", str(tmp_path))
    assert (done.returncode, done.stdout.count("Not found RDMA device")) == (1, 2)


def test_the_script_itself(root):
    assert run("nccl-env", "--script").stdout == NCCL_ENV.read_text()


def test_the_script_of_vke_knows_no_vllm(root):
    done = run("nccl-env", "--vllm", "--vke", "--root", str(root))
    assert (done.returncode, "cannot be combined" in done.stderr) == (2, True)
    done = run("nccl-env", "--vllm", "--root", str(root))
    assert (done.returncode, "vLLM is told of none" in done.stderr) == (0, True)
