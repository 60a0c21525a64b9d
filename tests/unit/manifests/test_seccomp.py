"""The seccomp profiles against what was traced, and where an installation names them."""

import json

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma.install.rules.presets import PRESETS
from kube_rdma_lab.installation import objects
from tests.house.tree import ROOT

FOLDER, TRACED = ROOT / "config/seccomp", ROOT / "tests/data/seccomp"
NAMES = ("agent", "controller")
# What no program here has a reason for: other processes, modules, keys, mounts, devices, the clock.
FOREIGN = {
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "userfaultfd"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "bpf", "perf_event_open"),
    *("add_key", "keyctl", "request_key", "io_uring_setup", "personality", "open_by_handle_at"),
    *("mount", "umount2", "pivot_root", "move_mount", "open_tree", "chroot", "mknod", "mknodat"),
    *("reboot", "swapon", "settimeofday", "clock_settime", "setuid", "setgid", "chown", "fchownat"),
}
OF_AGENTS = {"setns", "unshare", "fsopen", "unlinkat", "renameat", "mkdirat", "fchmodat"}


def profile(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def allowed(name):
    return [call for group in profile(name)["syscalls"] for call in group["names"]]


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_allows_what_its_program_was_seen_to_do(name):
    """`python -m tests.kit.traced` wrote the list."""
    assert set((TRACED / f"{name}.txt").read_text().split()) <= set(allowed(name))


@pytest.mark.parametrize("name", NAMES)
def test_all_else_is_refused_as_a_kernel_without_it_does(name):
    """By ENOSYS, for which libc has another way where it can have one."""
    document = profile(name)
    assert (document["defaultAction"], document["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert {group["action"] for group in document["syscalls"]} == {"SCMP_ACT_ALLOW"}
    assert document["architectures"] == ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]
    assert not FOREIGN & set(allowed(name))


@pytest.mark.parametrize("name", NAMES)
def test_each_call_stands_once_in_a_group_that_says_why(name):
    calls = allowed(name)
    assert len(calls) == len(set(calls))
    for group in profile(name)["syscalls"]:
        assert group["comment"].endswith(".")
        assert group["names"] == sorted(group["names"])


def test_the_controller_writes_no_file_and_enters_no_namespace():
    assert set(allowed("controller")) < set(allowed("agent"))
    assert not OF_AGENTS & set(allowed("controller"))
    assert set(allowed("agent")) >= OF_AGENTS


def profiles(made):
    """The seccomp profile of each container of a workload, by its name."""
    return {
        (each["kind"], one["name"]): one["securityContext"]["seccompProfile"]
        for each in made
        if "template" in each.get("spec", {})
        for one in each["spec"]["template"]["spec"]["containers"]
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_without_a_value_containers_have_the_runtime_s_profile(preset):
    made = profiles(objects((), preset))
    assert made
    assert all(one == {"type": "RuntimeDefault"} for one in made.values())


def test_a_value_names_a_file_of_the_nodes():
    layers = [assignment(f"{name}.seccompProfile=kube-rdma/{name}.json") for name in NAMES]
    made = profiles(objects(layers, "default"))
    for key in (("DaemonSet", "agent"), ("Deployment", "controller")):
        wanted = {"type": "Localhost", "localhostProfile": f"kube-rdma/{key[1]}.json"}
        assert made[key] == wanted
