"""What the tests of the bare machine are given: cards, Soft-RoCE links, a pod-like namespace."""

from __future__ import annotations

import pytest

from .world import CARDS, inside, interface, links, run, until


@pytest.fixture
def cards():
    """The interfaces of the two cards, up and without addresses; NUMA node 0 and 1."""
    names = tuple(map(interface, CARDS))
    for name in names:
        run("ip", "link", "set", name, "up")
    yield names
    for name in names:
        run("ip", "address", "flush", "dev", name, "scope", "global")


@pytest.fixture
def link():
    """Make a Soft-RoCE link on an interface; what a test leaves is removed."""

    def make(name, netdev, namespace=None):
        where = inside(namespace) if namespace else ()
        run(*where, "rdma", "link", "add", name, "type", "rxe", "netdev", netdev)
        return name

    yield make
    for name in links():
        # One in a namespace that was deleted goes by itself, perhaps at this very moment.
        run("sh", "-c", f"rdma link delete {name} || true")
    until(lambda: not links())


@pytest.fixture
def pod(cards):
    """A network namespace with net1, a macvlan on the first card."""
    run("ip", "netns", "add", "pod")
    words = ("link", cards[0], "name", "net1", "netns", "pod", "type", "macvlan", "mode", "bridge")
    run("ip", "link", "add", *words)
    run("ip", "-n", "pod", "link", "set", "net1", "up")
    yield "pod"
    if "pod" in run("ip", "netns", "list"):
        run("ip", "netns", "delete", "pod")
