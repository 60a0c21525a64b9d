"""Another network namespace is entered for one descriptor and by nobody else; real and fake."""

from __future__ import annotations

import ctypes
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import kube_rdma
from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel.pod import namespaces
from kube_rdma.adapters.kernel.pod.namespaces import links_inside, make_namespace, open_inside
from kube_rdma.model.device import PodLink
from kube_rdma_testing.kernel.namespaces import FakeNamespaces

HERE = Path("/proc/thread-self/ns/net")
LO = PodLink("lo", up=False, carrier=None, pci=None)

# Says that it is in a namespace of its own, and lives until its input ends.
HOLDER = "import sys; print(flush=True); sys.stdin.read()"


def may_enter():
    """Whether this process has CAP_SYS_ADMIN, the 21st capability."""
    status = Path("/proc/self/status").read_text()
    return bool(int(re.search(r"CapEff:\s*([0-9a-f]+)", status)[1], 16) >> 21 & 1)


needs_root = pytest.mark.skipif(not may_enter(), reason="only root may enter a namespace")


@contextmanager
def holder(*before):
    """A process in a new network namespace."""
    argv = ["unshare", "--net", *before, sys.executable, "-c", HOLDER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"\n"
            yield process
        finally:
            process.stdin.close()


@dataclass(frozen=True)
class World:
    """The two functions, a namespace with nothing but lo, and a way to remove it."""

    open_inside: Callable
    links_inside: Callable
    namespace: Path
    other_file: Path
    remove: Callable


@pytest.fixture(params=["fake", pytest.param("real", marks=needs_root)])
def world(request, tmp_path):
    other = tmp_path / "file"
    other.touch()
    if request.param == "fake":
        path = Path("/proc/4711/ns/net")
        fake = FakeNamespaces({path: (LO,), other: None})
        yield World(fake.open_inside, fake.links_inside, path, other, lambda: fake.remove(path))
        return
    with holder() as process:

        def remove():
            process.stdin.close()
            process.wait()

        path = Path(f"/proc/{process.pid}/ns/net")
        yield World(open_inside, links_inside, path, other, remove)


def test_a_namespace_shows_its_own_interfaces(world):
    assert [link for link in world.links_inside(world.namespace) if link.name == "lo"] == [LO]


def test_what_the_opener_returns_or_raises_comes_out(world):
    assert world.open_inside(world.namespace, lambda: 7) == 7
    with pytest.raises(KeyError):
        world.open_inside(world.namespace, lambda: {}["x"])


def test_a_namespace_that_is_gone_is_unavailable(world):
    world.remove()
    with pytest.raises(Unavailable, match=f"{world.namespace} is gone"):
        world.links_inside(world.namespace)
    with pytest.raises(Unavailable, match="behind descriptor 987654 is gone"):
        world.links_inside(987654)


def test_another_file_is_no_namespace(world):
    with pytest.raises(Refused, match="is not a network namespace") as caught:
        world.links_inside(world.other_file)
    assert "/run/netns/NAME" in caught.value.remedy


@needs_root
def test_the_opener_runs_inside_and_this_thread_stays_outside():
    before, threads = HERE.readlink(), threading.active_count()
    with holder() as process:
        path = Path(f"/proc/{process.pid}/ns/net")
        assert open_inside(path, HERE.readlink) == path.readlink() != before
    assert (HERE.readlink(), threading.active_count()) == (before, threads)


@needs_root
def test_a_new_namespace_has_nothing_but_its_loopback_and_this_thread_stays_outside():
    before = HERE.readlink()
    descriptor = make_namespace()
    try:
        assert "lo" in [link.name for link in links_inside(descriptor)]
        assert not [link for link in links_inside(descriptor) if link.pci or link.up]
        assert open_inside(descriptor, HERE.readlink) != before
    finally:
        os.close(descriptor)
    assert HERE.readlink() == before


@needs_root
def test_a_descriptor_stays_bound_to_the_namespace_it_was_opened_in():
    """Two sockets listen on one port of one address, each in its own namespace."""
    with holder() as process:
        descriptor = os.open(Path(f"/proc/{process.pid}/ns/net"), os.O_RDONLY)
        try:
            inside = open_inside(descriptor, socket.socket)
        finally:
            os.close(descriptor)
        with inside, socket.socket() as outside:
            outside.bind(("0.0.0.0", 0))  # noqa: S104  # the address of every namespace
            inside.bind(outside.getsockname())


@needs_root
def test_an_interface_is_found_by_the_namespace_it_is_in(tmp_path):
    """A bridge made inside is seen from here, and not among ours."""
    script = 'ip link add name br-in type bridge && exec "$@"'
    if subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "x", "true"], check=False
    ).returncode:
        pytest.skip("this kernel has no bridges")
    with holder("sh", "-c", script, "x") as process:
        names = [link.name for link in links_inside(Path(f"/proc/{process.pid}/ns/net"))]
    assert "br-in" in names
    assert "br-in" not in [link.name for link in links_inside(HERE)]


# Gives up every capability, as the plugin's pod has none, and tries to enter its own namespace.
UNPRIVILEGED = """
import os
from pathlib import Path
from kube_rdma.adapters.kernel.pod.namespaces import links_inside
from kube_base.errors import Refused
if os.getuid() == 0:
    os.setuid(65534)
try:
    links_inside(Path("/proc/thread-self/ns/net"))
except Refused as error:
    print(error)
"""


def test_without_the_capability_it_is_refused_with_the_remedy():
    path = Path("/proc/thread-self/ns/net")
    with pytest.raises(Refused) as caught:
        FakeNamespaces({path: (LO,)}, permitted=False).links_inside(path)
    real = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED], capture_output=True, text=True, check=False
    )
    assert "CAP_SYS_ADMIN" in str(caught.value)
    assert (real.stdout, real.stderr) == (f"{caught.value}\n", "")


def test_the_fake_refuses_a_namespace_without_loopback():
    with pytest.raises(ValueError, match="has an interface lo"):
        FakeNamespaces({Path("/run/netns/x"): ()})


def test_no_other_code_changes_namespace():
    """One function does this for all."""
    root = Path(kube_rdma.__file__).parent
    words = re.compile(r"\bsetns\(|\bunshare\(|nsenter")
    found = {path for path in root.rglob("*.py") if words.search(path.read_text())}
    assert found == {Path(namespaces.__file__)}
    assert hasattr(ctypes.CDLL(None), "setns")
