"""One native node: a NodeSpec goes in, a program comes out that the supervisor holds.

The program is node/native/init, which becomes the node's first process; when it is ended, the
kernel ends the node with it (docs/decisions/0004).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kube_rdma_lab.build.initrd import NODE, NODE_ROOT
from kube_rdma_lab.build.parts import Parts
from kube_rdma_lab.native import cards
from kube_rdma_lab.native.cards import Cards
from kube_rdma_lab.network import end
from kube_rdma_lab.processes import Program, call, running
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import RDMA_MTU, NodeSpec, Topology

INIT = NODE / "native/init"
PID = "pid"  # in the node's folder: its first process, as the lab's PID namespace counts
# What programs expect everywhere; the numbers are the kernel's (admin-guide/devices.txt).
DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "kmsg": (1, 11),  # where the kubelet reads who was killed for memory
    "tty": (5, 0),
    "fuse": (10, 229),
    "net/tun": (10, 200),
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SPEC = "container.json"
# Root without CAP_SYS_RESOURCE, as in many containers, may not lower the score that runc would set.
# It goes on with the table that the configurations of release.py end with.
RUNTIME = "  restrict_oom_score_adj = true\n"
BASE_SPEC = f'  base_runtime_spec = "/lab/{SPEC}"\n'


def write_cards(state: Path, topology: Topology) -> dict[str, tuple[str, ...]]:
    """Write the cards of all native nodes of a lab; return their interfaces by the node's name."""
    interfaces = {}
    for node in topology.natives:
        home = state / "nodes" / node.name
        home.mkdir(exist_ok=True)
        shown = cards.write(node.tree, home / "sys") if node.tree else Cards()
        interfaces[node.name] = shown.interfaces
    return interfaces


def write_files(files: Path, node: NodeSpec, parts: Parts) -> None:
    """Write a native node's own files: paths, links, devices and containerd's configuration."""
    assert parts.native
    home = files.parent
    shown = cards.read(home / "sys") if node.tree else Cards()
    (home / "root").mkdir()
    places = {
        "ROOT": home / "root",
        "PACKAGE": NODE_ROOT,
        "BASE": parts.native.base,
        "BIN": parts.bin,
        "IMAGES": parts.native.images,
        "SYSFS": home / "sys" if node.tree else "",
        "PARTS": " ".join(cards.PARTS),
    }
    (files / "native.env").write_text(
        "".join(f"{name}={shlex.quote(str(path))}\n" for name, path in places.items())
    )
    (files / "links").write_text(links(node, shown))
    (files / "devices").write_text(devices(shown))
    (files / "containerd.toml").write_text(runtime_configuration(node, parts.release))


def runtime_configuration(node: NodeSpec, release: Release) -> str:
    """Return containerd's configuration for its release, with additions for native nodes."""
    own = release.differences
    return own.runtime.read_text() + RUNTIME + (own.runc + BASE_SPEC if node.tree else "")


def links(node: NodeSpec, shown: Cards) -> str:
    """Return one line per interface: its name before the node takes it, its own name, its MTU."""
    lines = [f"{end(node, 0)} eth0 1500\n"]
    lines += [
        f"{end(node, position)} {name} {RDMA_MTU}\n"
        for position, name in enumerate(shown.interfaces, start=1)
    ]
    return "".join(lines)


def devices(shown: Cards) -> str:
    """Return one line per device node: its path below /dev, its numbers."""
    numbers = {
        **DEVICES,
        **{char.path.removeprefix("/dev/"): (char.major, char.minor) for char in shown.devices},
    }
    return "".join(f"{path} {major} {minor}\n" for path, (major, minor) in numbers.items())


def with_cards(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a container's OCI spec with the node's simulated /sys in place of the kernel's.

    The runtime adds the container's own control groups at /sys/fs/cgroup.
    """
    kept = [mount for mount in spec["mounts"] if mount["destination"] != "/sys"]
    options = ["bind", "ro", "nosuid", "noexec", "nodev"]
    own = [
        {"destination": path, "type": "bind", "source": path, "options": options}
        for path in ("/sys", *(f"/sys/{part}" for part in cards.PARTS))
    ]
    return {**spec, "mounts": [*kept, *own]}


@contextlib.asynccontextmanager
async def native_node(
    node: NodeSpec, parts: Parts, state: Path, files: Path
) -> AsyncIterator[Program]:
    """Run a native node until the scope closes; `files` is the folder that it has as /lab.

    Its console goes to logs/<node>.console.log.
    """
    write_files(files, node, parts)
    if node.tree:
        spec = json.loads(await call((parts.bin / "ctr", "oci", "spec")))
        (files / SPEC).write_text(json.dumps(with_cards(spec)))
    console = state / "logs" / f"{node.name}.console.log"
    argv = ("bash", INIT, "start", files)
    async with running(node.name, argv, console, farewell=signal.SIGKILL) as program:
        yield program


def write_pid(state: Path, node: NodeSpec, program: Program) -> None:
    """Record the pid of a booted node's first process, the child of `unshare`."""
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text()
    (state / "nodes" / node.name / PID).write_text(children.split()[0])


def enter(state: Path, node: NodeSpec) -> list[str]:
    """Return the command prefix that enters a node, for programs in the lab's namespaces."""
    environment = ("env", "-i", "HOME=/root", f"PATH={PATH}", f"TERM={os.environ.get('TERM', '')}")
    first = first_process(state, node)
    return ["nsenter", f"--target={first}", "--all", "--", *environment]


def enter_network(state: Path, node: NodeSpec) -> list[str]:
    """Return the command prefix that runs a host's command in a node's network only."""
    return ["nsenter", f"--target={first_process(state, node)}", "--net", "--"]


def first_process(state: Path, node: NodeSpec) -> str:
    """Return the pid of a node's first process in the lab's PID namespace."""
    return (state / "nodes" / node.name / PID).read_text()
