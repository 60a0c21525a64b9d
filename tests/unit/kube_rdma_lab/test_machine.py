"""A node as QEMU sees it, and the files it finds: what a topology promises is really there."""

import json
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from kube_rdma_lab import node_files
from kube_rdma_lab.build import images
from kube_rdma_lab.build.initrd import NODE_ROOT
from kube_rdma_lab.build.parts import MachineParts, NativeParts, Parts
from kube_rdma_lab.build.qemu import Qemu
from kube_rdma_lab.machine import write_initrd
from kube_rdma_lab.native import node as native
from kube_rdma_lab.pki import Authority
from kube_rdma_lab.qemu_machine import command_line, kernel_arguments
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import find

NODE = find("two-nodes").nodes[0]
DISPLAY = "bochs-display"
PARTS = MachineParts(
    qemu=Qemu(Path("/p/qemu")),
    kernel=Path("/p/vmlinuz"),
    kernel_release="7.2",
    initrd=Path("/p/initrd"),
    root_disk=Path("/p/root"),
    image_disk=Path("/p/images"),
)


def options(flag):
    argv = command_line(NODE, PARTS, ("-accel", "tcg"), Path("/i"), Path("/d"))
    return [value for name, value in pairwise(argv) if name == flag]


@pytest.mark.parametrize("machine", [None, PARTS])
@pytest.mark.parametrize("native", [None, NativeParts(Path("/p/base"), Path("/p/root"))])
@pytest.mark.parametrize("release", Release)
def test_parts_survive_the_way_to_the_supervisor(machine, native, release):
    parts = Parts(Path("/p/bin"), native, machine, release)
    assert Parts.from_json(parts.to_json()) == parts


def test_every_pci_device_names_its_bus_because_a_pxb_would_take_it():
    assert all(",bus=" in device for device in options("-device"))


def fields(device):
    """Split the options of a -device."""
    kind, *rest = device.split(",")
    return {"kind": kind, **dict(option.split("=", 1) for option in rest)}


def test_every_function_hangs_from_the_pcie_root_of_its_socket():
    devices = {each["id"]: each for each in map(fields, options("-device")) if "id" in each}
    roots = {name: each for name, each in devices.items() if each["kind"] == "pxb-pcie"}
    assert [root["numa_node"] for root in roots.values()] == ["0", "1"]

    def socket(device):
        while device["bus"] not in roots:
            device = devices[device["bus"]]
        return int(roots[device["bus"]]["numa_node"])

    placed = [each for each in map(fields, options("-device")) if each["bus"].startswith("port")]
    sockets = [socket(each) for each in placed]
    assert sockets == [each.numa_node for each in (*NODE.nics, *NODE.gpus)]


def test_no_two_ports_share_a_chassis_or_a_name():
    ports = [each for each in map(fields, options("-device")) if "chassis" in each]
    for key in ("chassis", "id"):
        assert len({each[key] for each in ports}) == len(ports)


def test_cards_stay_out_of_switches_whose_windows_the_firmware_would_overfill():
    below = {each["bus"] for each in map(fields, options("-device")) if each["kind"] == DISPLAY}
    ports = [each for each in map(fields, options("-device")) if "downstream" in each["kind"]]
    assert ports
    assert {port["id"] for port in ports} < below


def test_the_rdma_namespace_mode_is_chosen_on_the_kernel_s_command_line():
    modes = [kernel_arguments(node) for node in find("netns-exclusive").nodes]
    assert ["ib_core.netns_mode=0" in words for words in modes] == [False, True]


def test_the_root_disk_that_nodes_share_is_never_written():
    root = next(drive for drive in options("-drive") if "id=root" in drive)
    assert "readonly=on" in root


def test_what_lies_below_a_node_s_disk_may_be_locked_by_others():
    """A node that is a user-mode kernel locks the same file for reading."""
    images = next(drive for drive in options("-drive") if "id=images" in drive)
    assert "backing.file.locking=off" in images.split(",")


def test_memory_and_processors_are_split_over_the_sockets():
    assert options("-numa") == [
        "node,nodeid=0,cpus=0,memdev=mem0",
        "node,nodeid=1,cpus=1,memdev=mem1",
    ]


def test_a_node_s_files_lie_behind_the_common_archive_readable_by_root_alone(tmp_path):
    (tmp_path / "common").write_bytes(b"common" + bytes(506))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "node.env").write_text("NODE=node-1")
    write_initrd(tmp_path / "common", tmp_path / "files", tmp_path / "initrd")
    data = (tmp_path / "initrd").read_bytes()
    assert data.startswith(b"common")
    assert data[512:].startswith(b"070701" + b"00000001" + b"%08X" % 0o40700)
    assert b"lab/node.env\0" in data


@pytest.fixture
def files(tmp_path):
    """The folder that node-1 finds as /lab."""
    node_files.write(tmp_path, NODE, find("two-nodes"))
    node_files.write_kubernetes(tmp_path, NODE, Authority("test"))
    node_files.write_ssh(tmp_path, "ssh-ed25519 key")
    return tmp_path


def test_a_node_knows_its_cards_by_mac(files):
    assert (files / "nics").read_text().splitlines() == [
        "52:54:00:00:01:01 ens2f0 192.168.50.11/24 rxe0 virtio 0",
        "52:54:00:00:01:02 ens3f0 192.168.51.11/24 rxe1 virtio 0",
        "52:54:00:00:01:03 ens4f0 192.168.52.11/24 - igb 4",
    ]
    functions = (files / "vfs").read_text().splitlines()
    assert functions[0] == "ens4f0 0 52:54:00:03:01:80 ens4f0v0"
    assert len(functions) == 4


def test_a_node_routes_to_the_pods_of_all_others(files):
    assert (files / "routes").read_text() == "10.244.2.0/24 10.89.0.12\n"


def test_the_kubelet_believes_nobody_without_a_certificate(files):
    kubelet = json.loads((files / "kubernetes" / "kubelet.json").read_text())
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert kubelet["authorization"] == {"mode": "Webhook"}


def test_the_kubelet_aligns_as_the_topology_says():
    nodes = (NODE, find("four-cards").nodes[0])
    policies = [node_files.kubelet_configuration(node)["topologyManagerPolicy"] for node in nodes]
    assert policies == ["none", "best-effort"]


def test_a_native_node_goes_on_with_the_last_table_of_the_runtime_s_configuration():
    """What it adds stands beside what both kinds of nodes have, under the runtime's own name."""
    shared = (NODE_ROOT / "etc/containerd/config.toml").read_text()
    both = tomllib.loads(shared)["plugins"]["io.containerd.cri.v1.runtime"]
    runtime = cri(Release.NEWEST)["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["stats_collect_period"] == both["stats_collect_period"]
    assert runtime["containerd"]["runtimes"]["runc"]["base_runtime_spec"] == "/lab/container.json"


def test_an_older_runtime_is_told_the_same_in_its_own_words():
    """Version 2 has one plugin for all of CRI; CDI stays off, as containerd 1.7 comes."""
    document = cri(Release.OLDER)
    assert document["version"] == 2
    (plugin,) = document["plugins"].values()
    runc = plugin["containerd"]["runtimes"]["runc"]
    assert runc["base_runtime_spec"] == "/lab/container.json"
    assert runc["options"]["BinaryName"] == "/usr/sbin/runc"
    assert plugin["restrict_oom_score_adj"] is True
    assert plugin["sandbox_image"] == images.PAUSE
    assert "enable_cdi" not in plugin


def cri(release):
    """containerd's configuration of a native node with cards."""
    return tomllib.loads(native.runtime_configuration(find("native").nodes[0], release))


def test_an_older_kubelet_is_given_no_field_that_it_does_not_know():
    newest, older = (
        node_files.kubelet_configuration(NODE, release)
        for release in (Release.NEWEST, Release.OLDER)
    )
    assert newest.keys() - older.keys() == {"failCgroupV1"}
    assert older.items() <= newest.items()


def test_keys_of_a_node_are_readable_by_root_alone(files):
    secrets = [*files.rglob("*.key"), *files.rglob("*.kubeconfig")]
    assert secrets
    assert all(path.stat().st_mode & 0o077 == 0 for path in secrets)
