"""A first minute without cluster, lab, root or Linux: example machines by name.

The commands run in processes on which kube-rdma's own code finds nothing of Linux
(tests/kit/other_system.py). That such a process notices what it forbids is shown here too.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_rdma.cli.config import config
from kube_rdma.cli.devices import devices
from kube_rdma.cli.doctor import doctor
from kube_rdma.cli.explain import explain
from kube_rdma.hardware import machines
from tests.kit.golden import assert_golden
from tests.kit.other_system import FOLDERS, SYSTEMS, absent, is_absent
from tests.kit.terminal import shown

HERE = Path(__file__).parent
PAGES = HERE / "machine_pages"
ROOT = HERE.parents[2]
FILES = ROOT / "examples/any-laptop"
POD, POOLS, NETWORK = FILES / "pod.yaml", FILES / "pools.yaml", FILES / "network.yaml"
EXPLAIN = ("explain", "-f", POD, "--config", POOLS, "--config", NETWORK, "--sysfs")
CHECK = ("config", "check", POOLS, "--sysfs")
COMMANDS = (
    ("devices", "--sysfs"),
    ("devices", "-o", "json", "--sysfs"),
    ("devices", "-o", "ibdev2netdev", "--sysfs"),
    ("devices", "--topology", "--sysfs"),
    ("devices", "--topology", "-o", "nccl", "--sysfs"),
    CHECK,
    EXPLAIN,
    ("doctor", "--sysfs"),
)
# What own code of the path might do one day; each in a module of its own.
PLANTED = {
    "a module": "import fcntl",
    "a module in a function": "def main():\n    import resource",
    "netlink": "import kube_rdma.adapters.kernel.netlink.codec",
    "what uses netlink": "from kube_rdma.hardware.survey import take_survey",
    "a name that is imported": "from socket import AF_NETLINK",
    "a name of a module": "import os\nos.sched_getaffinity(0)",
    "a name behind another module": "import os.path\nos.O_PATH",
    "a file": "open('/proc/self/status')",
    "a file by its descriptor": "import os\nos.open('/sys/class', os.O_RDONLY)",
    "a look": "from pathlib import Path\nPath('/sys/class/infiniband').is_dir()",
    "a look by name": "import os\nos.path.exists('/var/lib/kube-rdma')",
    "a list": "import os\nos.listdir('/dev/infiniband')",
    "a network": "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)",
    "a program": "import subprocess\nsubprocess.run(['true'])",
}

ON_DARWIN_TOO = {"a module", "a module in a function"}  # macOS has these modules


def on(system, code, *, extra="", terminal=None):
    """Run code in a process of that kind."""
    path = os.pathsep.join(filter(None, (extra, str(ROOT / "src"), str(ROOT))))
    begin = f"from tests.kit.other_system import become\nbecome({system!r})\n"
    return subprocess.run(
        [sys.executable, "-c", begin + code],
        stdout=terminal or subprocess.PIPE,
        stderr=terminal or subprocess.PIPE,
        text=True,
        check=False,
        env={"PYTHONPATH": path, "HOME": "/nonexistent", "PYTHONUTF8": "1"},
    )


def lines(commands):
    """Code that runs commands one after the other, each below what a person would type."""
    words = [[str(word) for word in command] for command in commands]
    return (
        "from pathlib import Path\n"
        "from kube_rdma.cli.main import cli\n"
        f"for words in {words!r}:\n"
        "    short = [Path(word).name if '/' in word else word for word in words]\n"
        "    print('$ kube-rdma', *short, flush=True)\n"
        "    try:\n"
        "        cli.main(words, standalone_mode=False)\n"
        "    except SystemExit as end:\n"
        "        assert end.code in (0, 1, 6), end.code\n"
        "    print(flush=True)\n"
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_all_machines_are_shown_where_nothing_of_linux_is(system):
    """Table, topology, pools and a pod of all."""
    commands = [(*command, name) for name in machines.names() for command in COMMANDS]
    done = on(system, lines(commands))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("$ kube-rdma") == len(commands)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_real_program_draws_and_refuses_there(system, tmp_path):
    """main() with its sentence and exit code, and a picture that is written."""
    main = "import sys\nfrom kube_rdma.cli.main import main\nsys.argv = {!r}\nmain()"
    picture = tmp_path / "dgx.svg"
    words = ["kube-rdma", "devices", "--sysfs", "dgx-like", "--svg", str(picture)]
    assert on(system, main.format(words)).returncode == 0
    assert picture.read_text().startswith("<svg ")
    done = on(system, main.format(["kube-rdma", "devices", "--sysfs", "dgx"]))
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "Did you mean dgx-like?" in done.stderr


# Each in a child of one process that has imported what all need, and is of that kind already.
CHILDREN = """
import importlib, os, sys
for name in {names!r}:
    sys.stdout.flush()
    if not os.fork():
        break
    print(name, os.waitstatus_to_exitcode(os.wait()[1]))
else:
    sys.exit()
module = importlib.import_module(name)
if hasattr(module, "main"):
    module.main()
print(name, "done")
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """What each planted module printed on a system, and its exit code at the end."""
    folder = tmp_path_factory.mktemp("planted")
    names = {what: f"kube_planted_{number}" for number, what in enumerate(PLANTED)}
    for what, name in names.items():
        (folder / f"{name}.py").write_text(PLANTED[what] + "\n")
    ended = {}
    for system in SYSTEMS:
        done = on(system, CHILDREN.format(names=list(names.values())), extra=str(folder))
        words = [line.split() for line in done.stdout.splitlines()]
        for what, name in names.items():
            ended[system, what] = [word for told, word in words if told == name]
    return ended


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_use_of_linux_ends_such_a_process(what, system, planted):
    goes_on = system == "darwin" and what in ON_DARWIN_TOO
    assert planted[system, what] == (["done", "0"] if goes_on else ["1"])


def test_what_nobody_forbids_goes_on_there(tmp_path):
    code = (
        "import os, socket, pathlib\nos.getpid(), socket.AF_INET, pathlib.Path('/nowhere').exists()"
    )
    (tmp_path / "kube_planted.py").write_text(code + "\n")
    for system in SYSTEMS:
        done = on(system, "import kube_planted\nprint('done')", extra=str(tmp_path))
        assert (done.stdout, done.stderr) == ("done\n", "")


def test_typeshed_says_what_other_systems_lack():
    """The source of what is forbidden: not empty, and not everything."""
    assert {"O_PATH", "sched_getaffinity", "memfd_create"} <= absent("os", "darwin")
    assert {"AF_NETLINK", "AF_PACKET", "AF_VSOCK"} <= absent("socket", "darwin")
    assert {"O_NOFOLLOW", "uname", "geteuid", "O_DIRECTORY"} <= absent("os", "win32")
    assert is_absent("fcntl", "win32")
    assert not is_absent("fcntl", "darwin")
    assert not {"open", "getpid", "path", "environ"} & absent("os", "win32")
    assert "/proc" in FOLDERS
    assert "/sys" in FOLDERS


def page(name):
    """What a terminal of 80 columns shows of a machine; lines end as a terminal ends them."""
    commands = [(*command, name) for command in (("devices", "--sysfs"), CHECK, EXPLAIN)]
    environment = {"PYTHONPATH": str(ROOT / "src"), "HOME": "/nonexistent", "PYTHONUTF8": "1"}
    named = [[getattr(word, "name", word) for word in command] for command in commands]
    code = f"import os\nos.chdir({str(FILES)!r})\n{lines(named)}"  # so that places are short
    return shown([sys.executable, "-c", code], environment).text


@pytest.mark.parametrize("name", [path.stem for path in sorted(PAGES.glob("*.txt"))])
def test_a_page_of_80_columns_is_as_it_was(name):
    made = page(name)
    assert_golden(PAGES / f"{name}.txt", made)
    printed = [line for line in made.splitlines() if not line.startswith("$ ")]
    assert max(map(len, printed)) <= 80


def test_there_are_pages_of_three_kinds_of_machines():
    assert {path.stem for path in PAGES.glob("*.txt")} >= {"dgx-like", "efa", "rxe-two"}


def run(command, *words):
    return CliRunner().invoke(command, [str(word) for word in words])


def test_a_folder_counts_more_than_a_machine_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(json.loads(run(devices, "-o", "json", "--sysfs", "efa").output)["devices"]) == 1
    (tmp_path / "efa/class").mkdir(parents=True)
    assert json.loads(run(devices, "-o", "json", "--sysfs", "efa").output)["devices"] == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (devices, ()),
        (doctor, ()),
        (config, ("check", POOLS)),
        (explain, ("-f", POD, "--config", POOLS)),
    ],
)
def test_a_wrong_name_gets_one_sentence_with_all_names(command, words):
    error = run(command, *words, "--sysfs", "mlx5-bund").exception
    assert isinstance(error, Refused)
    assert str(error).count("\n") == 0
    assert "Did you mean mlx5-bond?" in str(error)
    assert all(name in str(error) for name in machines.names())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--record", "x"), "dgx-like comes with kube-rdma and is no node"),
        (("--watch",), "a tree of files does not change by itself"),
    ],
)
def test_what_an_example_machine_cannot_do_is_refused(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = run(devices, "--sysfs", "dgx-like", *words).exception
    assert isinstance(error, Refused)
    assert sentence in str(error)
    assert not list(tmp_path.iterdir())


def test_what_no_file_says_is_not_held_against_a_pod():
    """Without pools and networks: both are named as not known, and nothing is refused."""
    result = run(explain, "-f", POD, "--sysfs", "dgx-like")
    assert result.exit_code == 0
    words = " ".join(result.output.split())
    assert "Not seen: the networks, for no file of --config has any." in words
    assert "No file of --config has a pool of rdma/nic: give its NodePolicy too" in words


def written(folder, resource, config, **selectors):
    """A file with a pool, a network of its resource, and a pod that asks for both."""
    pool = {"resourceName": resource, "resourcePrefix": "rdma", "selectors": selectors}
    tied = {"k8s.v1.cni.cncf.io/resourceName": f"rdma/{resource}"}
    network = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    network |= {"metadata": {"name": "net", "annotations": tied}}
    network |= {"spec": {"config": json.dumps({"cniVersion": "0.3.1", "name": "net"} | config)}}
    limits = {"name": "main", "resources": {"limits": {f"rdma/{resource}": 1}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [limits]}}
    pod["metadata"] = {"name": "p", "annotations": {"k8s.v1.cni.cncf.io/networks": "net"}}
    path = folder / "all.yaml"
    path.write_text("\n---\n".join(map(json.dumps, (network, pod))))
    kind = "resourceList" if selectors.pop("functions", None) else "configList"
    pool |= {"rdmaHcaMax": 63} if kind == "configList" else {}
    pools = folder / "pools.json"
    pools.write_text(json.dumps({kind: [pool]}))
    return path, pools


STATIC = {"type": "static", "addresses": [{"address": "10.40.0.11/24"}]}
ON_IB = {"type": "macvlan", "master": "ib0", "ipam": STATIC}
JUMBO = {"type": "macvlan", "master": "enp129s0f0np0", "mtu": 9600, "ipam": STATIC}


@pytest.mark.parametrize(
    ("machine", "config", "selectors", "lines"),
    [
        (
            *("dgx-like", ON_IB, {"ifNames": ["ib0"]}),
            ["macvlan does not work on ib0, which is InfiniBand", 'Write "type": "ipoib"'],
        ),
        (
            *("mlx5-ib-pf-vfs", {"type": "sriov", "vlan": 18, "ipam": {}}),
            {"vendors": ["15b3"], "isRdma": True, "functions": True},
            [
                "sriov does not work on ibs3f1, which is InfiniBand",
                'Write "type": "ib-sriov", and "pkey" in place of "vlan"',
            ],
        ),
        (
            *("mlx5-dual-port", JUMBO, {"ifNames": ["enp129s0f0np0"]}),
            [
                "an MTU of 9600 does not fit on enp129s0f0np0, which has 9000",
                "Write 9000 or less, or run: ip link set enp129s0f0np0 mtu 9600",
            ],
        ),
    ],
    ids=["06-macvlan-on-infiniband", "07-vlan-on-infiniband", "08-mtu-above-master"],
)
def test_a_network_that_its_card_cannot_carry_is_refused_in_the_first_lines(
    machine, config, selectors, lines, tmp_path
):
    """Forty mistakes, 06 to 08; the network of the pod's own file counts."""
    path, pools = written(tmp_path, "nic", config, **selectors)
    result = run(explain, "-f", path, "--sysfs", machine, "--config", pools)
    assert result.exit_code == 1
    _, agent, why, fix, _ = result.output.splitlines()[:5]
    assert agent.startswith("✗ The agent, at networks[0]")
    assert [why.strip().removeprefix("Why  "), fix.strip().removeprefix("Fix  ")] == lines


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-f", POD, "--config", POOLS), "--sysfs is missing"),
        (("pod/a", "--sysfs", "efa", "--config", POOLS), "are for a pod of a file: give -f"),
        (
            ("-f", POD, "--sysfs", "efa", "--config", POOLS, "--node", "a"),
            "--sysfs and --node exclude each other",
        ),
    ],
)
def test_options_of_explain_that_miss_another_are_a_usage_error(words, sentence):
    result = run(explain, *words)
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_network_that_no_file_has_is_told_with_what_was_meant(tmp_path):
    pod = tmp_path / "pod.yaml"
    pod.write_text(POD.read_text().replace("rail-net", "rail-nett"))
    words = ("-f", pod, "--config", POOLS, "--config", NETWORK, "--sysfs", "dgx-like")
    result = run(explain, *words)
    assert result.exit_code == 1
    assert "there is no network default/rail-nett" in result.output
    assert "Did you mean default/rail-net?" in " ".join(result.output.split())


def test_faults_of_the_files_are_refused_with_their_place(tmp_path):
    pools = tmp_path / "pools.yaml"
    pools.write_text(POOLS.read_text().replace("mode: shared", "mode: shard"))
    error = run(explain, "-f", POD, "--config", pools, "--sysfs", "dgx-like").exception
    assert isinstance(error, Refused)
    assert f"{pools}:" in str(error)
    assert "Did you mean shared?" in str(error).replace('"', "")


def test_the_commands_of_the_readme_are_among_them():
    """Whoever has no cluster types these first."""
    readme = (ROOT / "README.md").read_text()
    typed = [shlex.split(line) for line in readme.splitlines() if " --sysfs dgx-" in line]
    assert [words[:2] for words in typed] == [
        [".venv/bin/kube-rdma", "doctor"],
        [".venv/bin/kube-rdma", "devices"],
    ]


@pytest.mark.parametrize("master", [{"master": "bond0"}, {}])
@pytest.mark.parametrize("machine", ["mlx5-bond", "bnxt-bond"])
def test_a_card_in_a_bond_has_its_networks_on_the_bond(machine, master, tmp_path):
    """As the agent makes them (attach/rules/placement.base_of), and users write them."""
    network = {"type": "macvlan", "ipam": STATIC, **master}
    path, pools = written(tmp_path, "hca", network, drivers=["mlx5_core", "bnxt_en"])
    result = run(explain, "-f", path, "--config", pools, "--config", path, "--sysfs", machine)
    assert "make net1, macvlan (bridge) on bond0" in result.output
    assert result.exit_code == 0
