"""Limits of a pod on the real kernel: processes that make queue pairs and regions on Soft-RoCE."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest

from kube_rdma.adapters.kernel.cgroups import HostCgroups, RdmaGroups

from .rdma_cgroup_contract import ONE, OTHER, Limits, Processes, Taken
from .world import run

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

DEVICE = "rxe-limited"
# Enters a group, opens the device, makes a protection domain, a completion queue, then memory
# regions and queue pairs in turn; prints what it got and keeps it until its input ends.
TAKE = """
import ctypes, sys
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_void_p
group, device, opens, objects = sys.argv[1], sys.argv[2].encode(), *map(int, sys.argv[3:])
with open(group + "/cgroup.procs", "w") as procs:
    procs.write("0")
verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)

def call(name, *arguments, of=c_void_p):
    function = getattr(verbs, name)
    function.restype = of
    return function(*arguments)

class QueuePair(ctypes.Structure):  # struct ibv_qp_init_attr
    _fields_ = [
        ("context", c_void_p), ("send", c_void_p), ("receive", c_void_p), ("shared", c_void_p),
        ("send_requests", c_uint32), ("receive_requests", c_uint32), ("send_parts", c_uint32),
        ("receive_parts", c_uint32), ("inline", c_uint32), ("type", c_int), ("signals", c_int),
    ]

devices, index = call("ibv_get_device_list", None, of=POINTER(c_void_p)), 0
while call("ibv_get_device_name", c_void_p(devices[index]), of=c_char_p) != device:
    index += 1
memory = ctypes.create_string_buffer(4096)
contexts, made = [], []
for _ in range(opens):
    context = call("ibv_open_device", c_void_p(devices[index]))
    if not context:
        break
    contexts.append(c_void_p(context))
while len(contexts) == opens and len(made) < objects:
    if len(made) == 0:
        new = call("ibv_alloc_pd", contexts[0])
    elif len(made) == 1:
        new = call("ibv_create_cq", contexts[0], 16, None, None, 0)
    elif len(made) % 2:
        wish = QueuePair(None, made[1], made[1], None, 4, 4, 1, 1, 0, 2, 0)  # IBV_QPT_RC
        new = call("ibv_create_qp", c_void_p(made[0]), ctypes.byref(wish))
    else:
        new = call("ibv_reg_mr", c_void_p(made[0]), memory, ctypes.c_size_t(4096), 1)
    if not new:
        break
    made.append(new)
is_whole = len(contexts) == opens and len(made) == objects
print(len(contexts), len(made), 0 if is_whole else ctypes.get_errno(), flush=True)
sys.stdin.read()
"""


class RealWorld:
    """The bare machine's hierarchy, with the groups of two pods of the cgroupfs driver."""

    device = DEVICE

    def __init__(self, root, card):
        self.root, self.card, self.sleeper = root, card, None
        self.groups = RdmaGroups(HostCgroups(root))
        for uid in (ONE, OTHER):
            self.place(uid).mkdir(parents=True)
            self.groups.switch_on(uid)

    def place(self, uid):
        return self.root / f"kubepods/burstable/pod{uid}"

    @contextmanager
    def taking(self, uid, *, opens=1, objects):
        words = [str(self.place(uid)), DEVICE, str(opens), str(objects)]
        with subprocess.Popen(
            [sys.executable, "-c", TAKE, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            yield Taken(*map(int, process.stdout.readline().split()))
            process.stdin.close()
        assert process.returncode == 0

    def register_again(self):
        run("rdma", "link", "delete", DEVICE)
        run("rdma", "link", "add", DEVICE, "type", "rxe", "netdev", self.card)

    def keep_off(self):
        """A process stays in the group that is to give the controller, as in a misled node."""
        above = self.root / "busy"
        (above / "kubepods/podbusy-1").mkdir(parents=True)
        self.sleeper = subprocess.Popen(["sleep", "infinity"])
        (above / "cgroup.procs").write_text(str(self.sleeper.pid))
        return "busy-1"


@pytest.fixture
def world(cards, link, tmp_path):
    link(DEVICE, cards[0])
    run("mount", "-t", "cgroup2", "none", str(tmp_path))
    real = RealWorld(tmp_path, cards[0])
    yield real
    if real.sleeper:
        real.sleeper.kill()
        real.sleeper.wait()
    for top in ("kubepods", "busy"):
        below = sorted((tmp_path / top).rglob("*/"), reverse=True)
        for folder in (*(one for one in below if one.is_dir()), tmp_path / top):
            if folder.exists():
                folder.rmdir()
    run("umount", str(tmp_path))


class TestTheKernel(Limits):
    """On Soft-RoCE."""


@pytest.mark.slow  # seven processes with verbs, 10 s each on an emulated machine
class TestProcesses(Processes):
    """On Soft-RoCE."""
