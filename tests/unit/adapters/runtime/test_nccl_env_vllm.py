"""nccl_env.sh for vLLM: the nearest card for each GPU, in the form that its workers take."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.adapters.runtime.settings import NCCL_ENV as SCRIPT
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.gid_trees import SHELLS
from tests.unit.adapters.runtime.test_nccl_env import two

TREES = Path(__file__).parents[3] / "data/trees"
VLLM = ("VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS")
GPU = "0x030200"


def told(root, shell="sh", **more):
    done = subprocess.run(
        [*shell.split(), SCRIPT, "--format", "conf"],
        env={"PATH": os.environ["PATH"], "NCCL_ENV_ROOT": str(root), "NCCL_ENV": "vllm", **more},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.splitlines()), done.stderr


def function(root, place, pci_class, numa):
    folder = root / "sys" / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "class").write_text(f"{pci_class}\n")
    (folder / "numa_node").write_text(f"{numa}\n")
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    (listed / folder.name).symlink_to(f"../../../{place}")


def machine(root, gpus, cards):
    two(3, 3).write(root)
    for place in gpus:
        function(root, place, GPU, numa_of(place))
    for number, place in enumerate(cards):
        function(root, place, "0x020000", numa_of(place))
        (root / f"sys/class/infiniband/mlx5_{number}/device").symlink_to(f"../../../{place}")


def numa_of(place):
    return int(place.split("/")[1].removeprefix("pci")[:4], 16) % 2


def place(root, switch, slot):
    """Below one of a machine's host bridges and switches."""
    domain = f"{root:04x}"
    port, above = f"{domain}:00:01.0", f"{domain}:{switch:02x}:00.0"
    return f"devices/pci{domain}:00/{port}/{above}/{domain}:{switch + 8:02x}:{slot:02x}.0"


PLACES = st.builds(place, st.integers(0, 3), st.integers(1, 3), st.integers(0, 7))


@pytest.mark.parametrize("shell", ["busybox sh" if s == "busybox" else s for s in SHELLS])
def test_a_machine_with_a_card_for_each_gpu(tmp_path, shell):
    unpack((TREES / "dgx-like/tree.txt").read_text(), tmp_path / "sys")
    for folder in ("proc/net", "dev/infiniband"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(8):
        (tmp_path / f"dev/infiniband/uverbs{number}").touch()
    variables, _ = told(tmp_path, shell)
    pairs = [pair.split("=") for pair in variables[VLLM[0]].split(",")]
    assert [(gpu[:8], nic[:8]) for gpu, nic in pairs[:3]] == [
        ("0000:03:", "0000:04:"),
        ("0000:05:", "0000:06:"),
        ("0000:23:", "0000:24:"),
    ]
    assert len({nic for _, nic in pairs}) == 8
    assert variables[VLLM[1]] == "UCX_NET_DEVICES:1"
    assert "UCX_NET_DEVICES" not in variables  # vLLM would put each worker's card before it


@given(
    gpus=st.lists(PLACES, min_size=1, max_size=6, unique=True),
    cards=st.lists(PLACES, min_size=2, max_size=2, unique=True),
)
def test_the_nearest_card_and_of_equal_ones_the_least_used(tmp_path_factory, gpus, cards):
    root = tmp_path_factory.mktemp("m")
    gpus = [at for at in gpus if at not in cards]
    machine(root, gpus, cards)
    variables, said = told(root)
    if not gpus:
        assert "no GPU" in said
        assert variables["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"
        return
    uses, expected = Counter(), []
    for gpu in sorted(gpus, key=lambda at: at.rpartition("/")[2]):
        near = min(cards, key=lambda card: (-nearness(gpu, card), uses[card], cards.index(card)))
        uses[near] += 1
        expected.append(f"{gpu.rpartition('/')[2]}={near.rpartition('/')[2]}")
    assert variables[VLLM[0]] == ",".join(expected)


def nearness(first, second):
    shared = len(os.path.commonpath([first, second]).split("/"))
    return 2 * shared + (numa_of(first) == numa_of(second))


def test_a_device_without_a_function_of_its_own_is_no_card(tmp_path):
    two(3, 3).write(tmp_path)
    function(tmp_path, place(0, 1, 0), GPU, 0)
    variables, said = told(tmp_path)
    assert not variables.keys() & set(VLLM)
    assert said == "nccl_env.sh: no GPU or no card with a PCI function: vLLM is told of none.\n"
    assert variables["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"


def test_cards_with_different_ports_are_said(tmp_path):
    machine(tmp_path, [place(0, 1, 1)], [place(0, 1, 2), place(0, 1, 3)])
    ports = tmp_path / "sys/class/infiniband/mlx5_1/ports"
    (ports / "1").rename(ports / "2")
    variables, said = told(tmp_path)
    assert not variables.keys() & set(VLLM)
    assert "different ports" in said


def virtual(root):
    """The flag that x86 processors have in a guest."""
    (root / "proc").mkdir(exist_ok=True)
    text = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"
    (root / "proc/cpuinfo").write_text(text)


@given(
    gpus=st.lists(PLACES, min_size=1, max_size=6, unique=True),
    cards=st.lists(PLACES, min_size=2, max_size=2, unique=True),
)
def test_in_a_virtual_machine_no_pair_is_below_one_bridge(tmp_path_factory, gpus, cards):
    """Where a GPU has no other card, vLLM is told of none, for it needs one for each."""
    root = tmp_path_factory.mktemp("m")
    gpus = [at for at in gpus if at not in cards]
    machine(root, gpus, cards)
    virtual(root)
    variables, said = told(root)
    apart = {gpu: [one for one in cards if bridge(one) != bridge(gpu)] for gpu in gpus}
    if gpus and all(apart.values()):
        places = {at.rpartition("/")[2]: at for at in (*gpus, *cards)}
        pairs = [pair.split("=") for pair in variables[VLLM[0]].split(",")]
        assert len(pairs) == len(gpus)
        assert all(places[nic] in apart[places[gpu]] for gpu, nic in pairs)
    else:
        assert not variables.keys() & set(VLLM)
        assert not gpus or "in this virtual machine GPU" in said


def bridge(at):
    return at.split("/")[1:3]


def test_a_job_without_rdma_has_no_card_put_before_its_devices(tmp_path):
    machine(tmp_path, [place(0, 1, 1)], [place(1, 1, 2), place(2, 1, 3)])
    variables, _ = told(tmp_path, UCX_TLS="tcp")
    assert not variables.keys() & set(VLLM)
    assert variables["UCX_NET_DEVICES"] == "all"
