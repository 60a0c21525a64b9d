"""nccl_env.sh: in strict mode as the seed's script on any tree, else what is the container's."""

import json
import os
import re
import shutil
import subprocess
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from kube_rdma.adapters.runtime.settings import NCCL_ENV as SCRIPT
from kube_rdma_testing.kernel.gid_trees import (
    SHELLS,
    VARIABLES,
    Entry,
    PortFiles,
    Tree,
    mapped,
    seed_script,
    sourced,
)
from tests.unit.adapters.runtime.nccl_model import seed
from tests.unit.adapters.runtime.nccl_trees import TREES

STRICT = {"NCCL_ENV": "vke"}
NUMBERS = count()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    base = tmp_path_factory.mktemp("trees")

    def run(tree, shell="dash", script=None, **environment):
        root = base / str(next(NUMBERS))
        tree.write(root)
        path = SCRIPT
        if script is not None:
            path = base / "seed.sh"
            path.write_text(script.replace("/sys/class/", f"{root}/sys/class/"))
        try:
            return sourced(shell, path, root, **environment)
        finally:
            shutil.rmtree(root)

    return run


def reference(tree, script, run):
    """The seed's own script where it is at hand, else the model of it."""
    if script is not None:
        found = run(tree, "bash", script)
        return found.out, found.code, found.variables
    out, code, exported = seed(tree)
    return out.rstrip("\n"), code, dict.fromkeys(VARIABLES, "") | OLD | exported


# Programs that have an index under a name of their own; docs/settings.md has a source for each.
OF_ENGINES = (
    *("NVSHMEM_IB_GID_INDEX", "MC_GID_INDEX", "FI_VERBS_GID_IDX"),
    *("UCCL_IB_GID_INDEX", "UCCL_P2P_RDMA_GID_INDEX"),
)
OLD = {"NCCL_IB_HCA": "old", "NCCL_IB_GID_INDEX": "old"}
REFERENCES = {"model": None} | ({"seed": text} if (text := seed_script()) else {})


def two(first, second, **more):
    cards = {
        f"mlx5_{n}": {"1": PortFiles({str(index): Entry(mapped(f"10.0.0.{n + 1}"))})}
        for n, index in enumerate((first, second))
    }
    return Tree(cards, own4=("10.0.0.1", "10.0.0.2"), **more)


@pytest.mark.parametrize("script", REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("shell", SHELLS)
@given(tree=TREES)
@example(tree=Tree({}))
@example(tree=two(3, 3))
@example(tree=two(3, 5))
def test_in_strict_mode_it_is_the_seed_s(run, script, shell, tree):
    done = run(tree, shell, **STRICT)
    assert (done.out.rstrip("\n"), done.code, done.variables) == (
        *_stripped(reference(tree, script, run)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("script", REFERENCES.values(), ids=REFERENCES)
@settings(max_examples=30 * settings().max_examples)
@given(tree=TREES)
def test_in_strict_mode_it_is_the_seed_s_on_thousands_of_trees(run, script, tree):
    done = run(tree, "bash", **STRICT)
    assert (done.out.rstrip("\n"), done.code, done.variables) == (
        *_stripped(reference(tree, script, run)),
    )


def _stripped(found):
    out, *rest = found
    return (out.rstrip("\n"), *rest)


def given_to(run, tree, shell="dash"):
    done = run(tree, shell)
    assert (done.code, done.out) == (0, "")
    return {name: value for name, value in done.variables.items() if value not in ("", "old")}


@pytest.mark.parametrize("shell", SHELLS)
def test_two_cards(run, shell):
    assert given_to(run, two(3, 3, default="eth0"), shell) == {
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "NCCL_IB_GID_INDEX": "3",
        "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1",
        "UCX_IB_GID_INDEX": "3",
        "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
        "NVSHMEM_HCA_LIST": "mlx5_0:1,mlx5_1:1",
        "MC_MS_FILTERS": "mlx5_0,mlx5_1",
        **dict.fromkeys(OF_ENGINES, "3"),
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0",
    }


@pytest.mark.parametrize("shell", SHELLS)
def test_different_indexes_are_told_apart_by_a_range(run, shell):
    found = given_to(run, two(3, 12), shell)
    assert found["NCCL_IB_ADDR_RANGE"] == found["NVSHMEM_IB_ADDR_RANGE"] == "10.0.0.0/30"
    assert not found.keys() & {"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", *OF_ENGINES}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("transports", "devices"),
    [
        ("", "mlx5_0:1,mlx5_1:1"),
        ("all", "mlx5_0:1,mlx5_1:1"),
        ("^tcp", "mlx5_0:1,mlx5_1:1"),
        ("cuda,rc_x,self", "mlx5_0:1,mlx5_1:1"),
        ("tcp", "all"),
        ("sm,cuda_ipc,cuda_copy,tcp", "all"),
    ],
)
def test_ucx_without_rdma_is_not_kept_from_its_own_devices(run, shell, transports, devices):
    """A list of RDMA devices counts for TCP too, and leaves it none."""
    assert run(two(3, 3), shell, UCX_TLS=transports).variables["UCX_NET_DEVICES"] == devices


def test_ucx_without_rdma_keeps_the_devices_that_the_job_names(run):
    done = run(two(3, 3), UCX_TLS="tcp", UCX_NET_DEVICES="eth7")
    assert done.variables["UCX_NET_DEVICES"] == "eth7"


def test_ucx_without_a_fabric_is_told_nothing(run):
    """It finds the pod's own network by itself then."""
    done = run(Tree({}), UCX_TLS="tcp")
    assert done.code == 1
    assert done.variables.get("UCX_NET_DEVICES", "") in ("", "old")


def test_no_range_with_a_neighbour_in_it(run):
    tree = two(3, 12)
    tree.devices["mlx5_0"]["1"].gids["7"] = Entry(mapped("10.0.0.3"))
    done = run(tree)
    assert (done.code, done.out) == (1, "rdma devs index inconsistent\n")
    assert {name: done.variables[name] for name in OLD} == OLD


def test_a_neighbour_s_gid_on_an_interface_of_the_same_name_does_not_count(run):
    tree = two(3, 3)
    tree.own4 = ("10.0.0.1",)
    assert given_to(run, tree)["NCCL_IB_HCA"] == "=mlx5_0:1"


def test_a_device_that_the_container_cannot_open_does_not_count(run):
    assert given_to(run, two(3, 3, held=("mlx5_1",)))["NCCL_IB_HCA"] == "=mlx5_1:1"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tree, entry: setattr(entry, "type", None),
        lambda tree, entry: setattr(entry, "type", "IB/RoCE v1"),
        lambda tree, entry: setattr(entry, "netdev", None),
        lambda tree, entry: setattr(entry, "gid", ""),
        lambda tree, entry: tree.nets.update(net1=("", True)),
        lambda tree, entry: tree.nets.update(net1=("0", True)),
    ],
)
def test_the_seed_s_slips_are_mended(run, spoil):
    tree = two(3, 3, held=("mlx5_0",))
    spoil(tree, tree.devices["mlx5_0"]["1"].gids["3"])
    done = run(tree)
    assert done.code == 1
    assert done.out.count("Not found RDMA device") == 2


def test_the_fastest_cards_are_taken(run):
    tree = two(3, 3)
    tree.devices["mlx5_0"]["1"].rate = "2.5 Gb/sec (1X SDR)"
    assert given_to(run, tree)["NCCL_IB_HCA"] == "=mlx5_1:1"


def test_of_two_addresses_of_a_card_the_lower_index_is_taken(run):
    tree = two(3, 3)
    tree.devices["mlx5_0"]["1"].gids["10"] = Entry(mapped("10.0.0.2"))
    assert given_to(run, tree)["NCCL_IB_GID_INDEX"] == "3"


def test_ipv6_counts_where_there_is_no_other(run):
    digits = "fd000000000000000000000000000007"
    gid = ":".join(digits[at : at + 4] for at in range(0, 32, 4))
    link = Entry("fe80:0000:0000:0000:0000:00ff:fe00:0001")
    ports = {"1": PortFiles({"0": link, "4": Entry(gid)})}
    tree = Tree({"mlx5_0": ports}, own6=((digits, "net1"), ("fe80" + "0" * 28, "net1")))
    assert given_to(run, tree)["NCCL_IB_GID_INDEX"] == "4"
    tree.own6 = ((digits, "net2"),)
    assert run(tree).code == 1


def test_infiniband_has_no_index(run):
    ports = {"1": PortFiles({"0": Entry("fe80::1")}, link_layer="InfiniBand")}
    down = {"1": PortFiles({}, link_layer="InfiniBand", state="1: DOWN")}
    found = given_to(run, Tree({"mlx5_0": ports, "mlx5_1": down}))
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert "NCCL_IB_GID_INDEX" not in found


def test_thousands_of_gids(run):
    gids = {str(n): Entry(mapped(f"10.1.{n // 250}.{n % 250}")) for n in range(1024)}
    tree = Tree({"mlx5_0": {"1": PortFiles(gids)}}, own4=("10.1.3.7",))
    assert given_to(run, tree)["NCCL_IB_GID_INDEX"] == "757"


@given(tree=TREES)
def test_whatever_is_there_it_ends_with_a_sentence_or_whole(run, tree):
    tree.own4 = ("10.0.0.1", "10.0.0.3")
    done = run(tree)
    assert done.code in {0, 1}
    assert bool(done.out) == bool(done.code)
    if done.code == 0:
        ports = done.variables["NCCL_IB_HCA"].removeprefix("=").split(",")
        for name, port in (each.split(":") for each in ports):
            assert port in tree.devices[name]
    else:
        assert {name: done.variables[name] for name in OLD} == OLD


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("options", ["", "-f", "-u", "-e", "-efu"])
def test_the_shell_is_as_it_was(tmp_path, shell, options):
    two(3, 3).write(tmp_path)
    names = " ".join(VARIABLES)
    script = f"""
    set {options or "--"}
    IFS=:
    before=$-
    (set) > {tmp_path}/before
    . {SCRIPT}
    unset {names}
    (set) > {tmp_path}/after
    [ "$before" = "$-" ] && [ "$IFS" = : ]
    """
    words = ("busybox", "sh") if shell == "busybox" else (shell,)
    environment = {"PATH": os.environ["PATH"], "NCCL_ENV_ROOT": str(tmp_path)}
    subprocess.run([*words, "-c", script], env=environment, check=True)
    before, after = (
        {line.split("=")[0] for line in (tmp_path / name).read_text().splitlines()}
        for name in ("before", "after")
    )
    assert {name for name in after - before if not name.startswith(("_", "BASH", "PIPE"))} == set()
    assert not [name for name in after if name.startswith("_kr")]


def printed(root, *options):
    return subprocess.run(
        ["sh", SCRIPT, *options],
        env={"PATH": "/usr/bin:/bin", "NCCL_ENV_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_prints_what_it_would_export(tmp_path):
    two(3, 3).write(tmp_path)
    shell, conf = printed(tmp_path), printed(tmp_path, "--format", "conf")
    assert "export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'\n" in shell.stdout
    assert "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\n" in conf.stdout
    found = json.loads(printed(tmp_path, "--format", "json").stdout)
    assert found["UCX_IB_GID_INDEX"] == "3"


@pytest.mark.parametrize("options", [("--format",), ("--format", "xml"), ("json",), ("--help",)])
def test_a_wrong_word_is_one_sentence(tmp_path, options):
    done = printed(tmp_path, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nccl_env.sh: it takes --format shell, conf or json, and nothing else.\n"


def test_a_wrong_mode_is_one_sentence(run):
    done = run(Tree({}), NCCL_ENV="strict")
    assert (done.code, done.out) == (2, "")


def test_the_page_says_of_each_variable_of_the_script_that_it_is_given(run):
    """What a row calls given by the script is set there, and no row calls the rest given."""
    page = (Path(__file__).parents[4] / "docs/settings.md").read_text(encoding="utf-8")
    table = page.partition("## What engines read")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    words = {row[2] for row in rows}
    assert words == {"file, script", "script", "vllm", "no"}
    named = {
        way: {name for row in rows if row[2] == way for name in re.findall(r"`([^`]+)`", row[0])}
        for way in words
    }
    same, apart = (
        {name for name, value in run(tree).variables.items() if value not in ("", "old")}
        for tree in (two(3, 3, default="eth0"), two(3, 12, default="eth0"))
    )
    given = same | apart
    own = {"NCCL_IB_ADDR_RANGE", "UCX_UD_VERBS_ETH_DGID_CHECK"}  # told of elsewhere on the page
    assert named["file, script"] | named["script"] == given - own
    assert not named["no"] & given
    assert all(f"`{name}`" in page or f"{name}=" in page for name in own)
