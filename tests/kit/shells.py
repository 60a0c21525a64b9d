"""bash, zsh and fish of Debian on a terminal of their own, with kube-rdma on the PATH.

The shells are a tree of packages beside the parts of the lab, with Debian's Python. The checkout
and the packages of this Python are mounted into it, so the kube-rdma of the shells is the one that
is tested. They share the network of this machine, where a test serves an API server.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sysconfig
import termios
from pathlib import Path

from kube_rdma_lab.build import debian, resolution
from kube_rdma_lab.build.parts import open_store

TREE = debian.DebianTree("bookworm", "minbase", ("bash", "fish", "python3", "zsh"))
SOURCES = Path(__file__).parents[2] / "src"
PACKAGES = Path(sysconfig.get_path("purelib"))
HOME = "srv"  # where the home of a test lies in the tree
PATIENCE = 300.0  # seconds without a sign from a program that certainly goes on
# Control sequences: of colours and places (CSI), of titles (OSC), and those of two signs.
CONTROLS = re.compile(r"\x1b(?:\[[0-9;?>=]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
PROGRAM = '#!/bin/sh\nexec python3 -m kube_rdma.cli.main "$@"\n'
# The store's tree stays as it is: what a shell writes goes to the home of the test, or to memory.
INSIDE = """
set -e
tree=$1 home=$2 sources=$3 packages=$4
shift 4
cd "$tree"
for place in tmp run mnt; do mount -t tmpfs shells "$place"; done
mount --rbind /dev dev && mount -t proc proc proc && mount --bind "$home" srv
mkdir mnt/src mnt/packages
mount --bind "$sources" mnt/src && mount --bind "$packages" mnt/packages
exec chroot . env -i HOME=/srv KUBECONFIG=/srv/kubeconfig LANG=C.UTF-8 TERM=xterm \\
    PATH=/srv/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/mnt/src:/mnt/packages \\
    PYTHONDONTWRITEBYTECODE=1 sh -c 'cd && exec "$@"' sh "$@"
"""
ENTER = (
    *("setpriv", "--pdeathsig", "KILL", "--"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--"),
)


def build(store):
    """The folder that holds the tree."""

    def make(folder, shell):
        debian.unpack(TREE, folder / "tree", shell)

    inputs = {**TREE.inputs(), "stamp": resolution.stamp(update=False)}
    return store.get("shells", inputs, make) / "tree"


class Shells:
    """The tree with a home."""

    def __init__(self, tree, home):
        self._tree, self.home = tree, home
        program = home / "bin/kube-rdma"
        program.parent.mkdir()
        program.write_text(PROGRAM)
        program.chmod(0o755)

    def inside(self, *words):
        """The words of a command in the tree."""
        places = (self._tree, self.home, SOURCES, PACKAGES)
        return [*ENTER, "bash", "-c", INSIDE, "shells", *map(str, places), *words]

    def run(self, *words):
        """What a command prints; it has to end well."""
        done = subprocess.run(self.inside(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
        return done.stdout

    @contextlib.contextmanager
    def terminal(self, *words):
        """A shell that reads what is typed; it ends with the scope."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(ours, (40, 100))
        leader = ("setsid", "--ctty", "--wait", *words)  # as a terminal's window starts a shell
        process = subprocess.Popen(
            self.inside(*leader), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        try:
            yield Terminal(ours)
        finally:
            process.kill()
            process.wait()
            os.close(ours)


class Terminal:
    """A person at the terminal of a shell."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        self._shown = b""

    def type(self, keys):
        """Press keys; what was shown before is forgotten."""
        self._shown = b""
        os.write(self._descriptor, keys.encode())

    @property
    def text(self):
        """What the shell has shown since keys were pressed, without control sequences."""
        return CONTROLS.sub("", self._shown.decode(errors="replace"))

    def until(self, *parts):
        """Wait until all these stand on the terminal."""
        while not all(part in self.text for part in parts):
            ready, _, _ = select.select([self._descriptor], [], [], PATIENCE)
            assert ready, f"nothing more came, and {parts} is not in {self.text!r}"
            self._shown += os.read(self._descriptor, 1 << 16)
        return self.text


@contextlib.contextmanager
def opened(home):
    """The shells with this folder as home; the tree is made first where it is not there."""
    with open_store() as store:
        yield Shells(build(store), home)
