"""The shim as an OCI hook: whoever it is told of may lock memory without limit.

It asks no agent. Under containerd whatever the pod starts later may lock as much, by the limit of
the process that starts it.
"""

import asyncio
import json
import os
import resource
import shutil
import subprocess
from contextlib import contextmanager, suppress

import pytest

INFINITY = resource.RLIM_INFINITY
HARD = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
SOME = 1 << 20
LIMIT = f"ulimit -S -l {SOME // 1024}"  # of sh, in KiB
MEMLOCK = ("hook", "memlock")


def most():
    """What this machine lets us lift a limit to: no more than ours without CAP_SYS_RESOURCE."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process, suppress(PermissionError):
        resource.prlimit(process.pid, resource.RLIMIT_MEMLOCK, (INFINITY, INFINITY))
        return INFINITY
    return HARD


MOST = most()
COMPLAINT = b"" if MOST == INFINITY else b"kube-rdma: RLIMIT_MEMLOCK keeps its hard limit"
SHOWN = "unlimited" if MOST == INFINITY else str(MOST // 1024)


@contextmanager
def container():
    """A process with a limit of its own."""
    script = f"{LIMIT}; echo; exec cat"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert limits(process.pid) == (SOME, HARD)
        yield process.pid


def limits(pid):
    return resource.prlimit(pid, resource.RLIMIT_MEMLOCK)


def state(**more):
    """As runtimes write it (OCI runtime specification, runtime.md, "State")."""
    return json.dumps({"ociVersion": "1.0.2", "id": "c", "status": "created", **more}).encode()


async def test_a_container_may_lock_what_its_memory_allows(shim):
    with container() as pid:
        done = await shim.run({}, state(pid=pid, annotations={"pid": "1"}), *MEMLOCK)
        assert limits(pid) == (MOST, MOST)
    assert (done.code, done.out) == (0, b"")
    assert done.err.startswith(COMPLAINT)
    assert bool(done.err) == bool(COMPLAINT)


@pytest.mark.parametrize(
    "state",
    [b"", b"{}", b"[]", state(), state(pid=0), state(pid=-1), state(pid="x"), state(pid=None)],
)
async def test_what_is_no_state_is_said(shim, state):
    done = await shim.run({}, state, *MEMLOCK)
    assert (done.code, done.out) == (1, b"")
    assert done.err == b"kube-rdma: stdin is no OCI state with a pid.\n"


async def test_a_limit_that_stays_stops_no_container(shim):
    """Here the process has ended."""
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    done = await shim.run({}, state(pid=process.pid), *MEMLOCK)
    assert (done.code, done.out) == (0, b"")
    assert b"RLIMIT_MEMLOCK keeps its hard limit" in done.err


def programs(folder, *names):
    """Copies of sh: the kernel calls a process as its file is called."""
    for name in names:
        shutil.copy(shutil.which("sh"), folder / name)


@pytest.mark.parametrize(
    ("starter", "allowed"), [("containerd-shim-runc-v2", SHOWN), ("conmon", str(SOME // 1024))]
)
def test_what_the_pod_starts_later_may_lock_as_much(binary, tmp_path, starter, allowed):
    """`kubectl exec` starts from the process that has started the runtime; no other is changed."""
    programs(tmp_path, starter, "runc")
    runtime = f"{tmp_path}/runc -c '{binary} hook memlock; true'"
    with container() as pid:
        done = subprocess.run(
            [tmp_path / starter, "-c", f"{LIMIT}; {runtime}; ulimit -l"],
            input=state(pid=pid),
            capture_output=True,
            check=True,
            env={**os.environ, "KUBE_RDMA_ROOT": str(tmp_path)},
        )
        assert limits(pid) == (MOST, MOST)
    assert done.stdout.decode().strip() == allowed
    assert done.stderr.startswith(COMPLAINT)
