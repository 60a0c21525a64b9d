"""A node of Debian with what manages its interfaces: systemd-networkd, NetworkManager, udev.

The node is a tree in namespaces of this machine, without a kernel of its own: so it has no virtual
functions, and a pair of veth stands for a card and its function. All of it goes when the scope
closes.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from kube_rdma_lab.build import debian

TREE = debian.DebianTree(
    "bookworm", "minbase", ("systemd", "udev", "network-manager", "dbus", "iproute2")
)
UDEVD = "/usr/lib/systemd/systemd-udevd"
SERVE_BUS = ("dbus-daemon", "--system", "--nofork", "--nopidfile")
# Its own /dev, for rules of udev change what is there; a place for what systemd would have made.
SETUP = """
set -e
mount -t tmpfs node "$1" && cd "$1" && mkdir upper work root
mount -t overlay -o "lowerdir=$0,upperdir=upper,workdir=work" node root && cd root
mount -t proc proc proc && mount -t sysfs sys sys
mount -t tmpfs run run && mount -t tmpfs dev dev
for name in null zero random urandom full; do cp -a "/dev/$name" dev; done
echo 5eed5eed5eed5eed5eed5eed5eed5eed > etc/machine-id
mkdir -p run/dbus run/udev/rules.d run/systemd/netif/links run/systemd/netif/leases
mkdir -p run/systemd/netif/lldp etc/NetworkManager/system-connections etc/systemd/network
chroot . chown -R systemd-network:systemd-network /run/systemd/netif
ip link set lo up
echo ready && exec sleep infinity
"""
# The programs take part of this machine's state for that of the node otherwise.
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "SYSTEMD_IGNORE_CHROOT": "1",
    "SYSTEMD_PROC_CMDLINE": "quiet",
}
PATIENCE = 120.0  # seconds for what certainly happens


def tree(store, stamp):
    """The installed packages."""

    def make(folder, shell):
        debian.unpack(TREE, folder / "tree", shell)

    return store.get("network-managers", {**TREE.inputs(), "stamp": stamp}, make) / "tree"


class Node:
    """The running node."""

    def __init__(self, first, folder):
        self._first, self._folder = first, folder
        self._programs = []
        self.root = Path(f"/proc/{first}/root{folder}/root")

    def _inside(self, words):
        enter = ("nsenter", f"--target={self._first}", "--net", "--mount", "--pid", "--")
        return (*enter, "chroot", f"{self._folder}/root", *words)

    def run(self, *words, check=True):
        """What a command prints."""
        done = subprocess.run(
            self._inside(words), capture_output=True, text=True, check=False, env=ENVIRONMENT
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stderr or done.stdout}"
        return done.stdout

    def start(self, *words):
        """Start a program that ends with the node; what it says is in a log beside the tree."""
        with (self.root.parent / f"{Path(words[0]).name}.log").open("w") as log:
            program = subprocess.Popen(self._inside(words), stdout=log, stderr=log, env=ENVIRONMENT)
        self._programs.append(program)

    def ended(self):
        """Wait for the programs, which the kernel ends with the first one."""
        for program in self._programs:
            program.wait()

    def write(self, path, text):
        """Write a file of the node; NetworkManager reads none that others may read."""
        target = self.root / path.lstrip("/")
        target.write_text(text)
        target.chmod(0o600 if "system-connections" in path else 0o644)

    def link(self, name):
        """What `ip` shows of an interface."""
        (shown,) = json.loads(self.run("ip", "-json", "address", "show", "dev", name))
        return shown

    def settle(self):
        """Wait until udev has done with every event of the kernel."""
        self.until(lambda: "settled" in self.run("sh", "-c", "udevadm settle && echo settled"))

    def read_rules(self):
        """Make udevd read its rules, again where it ignored the message.

        It does so with a message that comes between its accept() and its SO_PASSCRED, and writes it
        to its log (src/udev/udev-ctrl.c of systemd 252; once in 600 with Linux 6.18).
        """

        def heard():
            log = self.root.parent / f"{Path(UDEVD).name}.log"
            ignored = log.read_text().count("ignoring message")
            self.run("udevadm", "control", "--reload")
            return log.read_text().count("ignoring message") == ignored

        self.until(heard)

    def until(self, condition):
        """Wait until a condition holds; the programs' words where it does not."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "\n".join(
                f"{log.name}: {log.read_text()[-2000:]}" for log in self.root.parent.glob("*.log")
            )
            time.sleep(0.1)


@contextmanager
def node(installed, folder):
    """A node of this tree, whose files lie in an empty folder, with udev and the system's bus."""
    words = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
    holder = subprocess.Popen(
        ("setpriv", "--pdeathsig", "KILL", "--", *words, "sh", "-c", SETUP, installed, folder),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )
    made = None
    try:
        assert holder.stdout.readline() == "ready\n"
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        made = Node(int(children[0]), folder)
        made.start(UDEVD)
        made.start(*SERVE_BUS)
        made.until((made.root / "run/dbus/system_bus_socket").exists)
        made.until((made.root / "run/udev/control").exists)
        yield made
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        if made:
            made.ended()
