"""Sets down or pulls simulated cards of a running native node, for people (`lab card`) and tests.

The tree is changed first (changes.py), so whoever reads it after the announcement sees the change.
An interface that goes down, comes or goes is a real one, which the kernel announces itself. For
other devices the kernel is given the uevent to send (announce.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma_lab import waiting
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.native import cards, changes
from kube_rdma_lab.native import node as native
from kube_rdma_lab.native.changes import TreeFunction

NET = "net"  # the subsystem that needs no announcement of ours
_ETHERNET = "1\n"  # ARPHRD_ETHER


def as_ethernet(lab: Lab) -> dict[Path, str]:
    """Make IPoIB interfaces in nodes' trees look like Ethernet; return the earlier text by file."""
    folders = (lab.home / "nodes" / spec.name / "sys" for spec in lab.topology.natives)
    types = [path for folder in folders for path in folder.glob("class/net/ib*/type")]
    recorded = {path: path.read_text() for path in types}
    for path in types:
        path.write_text(_ETHERNET)
    return recorded


class Replay:
    """The simulated cards of a native node, which can be set down and pulled.

    The constructor raises Refused without any; methods raise it for an unknown device or address.
    """

    def __init__(self, lab: Lab, node: str) -> None:
        spec = lab.node(node)
        if not spec.tree:
            raise Refused(
                f"{node} has no cards of a tree to replay",
                remedy="Choose a native node with a tree (`kube-rdma lab up --topology native`)",
            )
        self._lab = lab
        self._node = spec
        self._home = lab.home / "nodes" / node
        self._sysfs = self._home / "sys"
        self._stash = self._home / "pulled"

    def down(self, device: str) -> None:
        """Set the ports of an RDMA device and the interfaces of its function down."""
        self._ports(device, up=False)

    def up(self, device: str) -> None:
        """Set the ports of an RDMA device and the interfaces of its function up again."""
        self._ports(device, up=True)

    def pull(self, name: str) -> str:
        """Remove the function that `name` belongs to; return its address, for use with `plug`.

        Raise Refused as `changes.pull` does.
        """
        before = cards.read(self._sysfs)
        gone = changes.pull(self._sysfs, self._stash, name)
        left = cards.read(self._sysfs)
        for interface, own in self._links(gone):
            inside = native.enter_network(self._lab.home, self._node)
            # The lab's supervisor is the first process of the namespace that we are in.
            self._run(*inside, "ip", "link", "set", interface, "netns", "1", "name", own)
        paths = [char.path for char in before.devices if char not in left.devices]
        self._on_node("rm", "-f", *paths)
        self._announce("remove", gone)
        return gone.address

    def plug(self, address: str) -> None:
        """Put a pulled function back, with its device nodes and interfaces; announce it."""
        before = cards.read(self._sysfs)
        back = changes.plug(self._sysfs, self._stash, address)
        now = cards.read(self._sysfs)
        for char in now.devices:
            if char not in before.devices:
                numbers = (str(char.major), str(char.minor))
                self._on_node("mknod", "-m", "666", char.path, "c", *numbers)
        for interface, own in self._links(back):
            first = native.first_process(self._lab.home, self._node)
            self._run("ip", "link", "set", own, "netns", first, "name", interface)
            self._on_node("ip", "link", "set", interface, "up")
        self._announce("add", back)

    def _ports(self, device: str, *, up: bool) -> None:
        changes.ports(self._sysfs, device, up=up)
        for interface in changes.function(self._sysfs, device).interfaces:
            self._on_node("ip", "link", "set", interface, "up" if up else "down")

    def _links(self, function: TreeFunction) -> list[tuple[str, str]]:
        """Return a function's interfaces, each with the name that it has outside of the node."""
        lines = (self._home / "files" / "links").read_text().splitlines()
        outside = {name: own for own, name, _ in map(str.split, lines)}
        return [(name, outside[name]) for name in function.interfaces]

    def _announce(self, action: str, function: TreeFunction) -> None:
        events = [
            (action, member.subsystem, member.devpath)
            for member in function.members
            if member.subsystem != NET
        ]
        inside = native.enter_network(self._lab.home, self._node)
        program = (sys.executable, "-P", "-m", "kube_rdma_lab.native.announce")
        self._run(*inside, *program, stdin=json.dumps(events))

    def _run(self, *words: str, stdin: str = "") -> None:
        waiting.run(self._lab, [*self._lab.enter(), *words], stdin=stdin)

    def _on_node(self, *words: str) -> None:
        waiting.run(self._lab, self._lab.on_node(self._node.name, *words))
