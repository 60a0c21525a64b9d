"""`kube-rdma verify --hardware-selftest` on real cards: all passes, and the node is as before."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kube_rdma.model.device import PortState

from .world import NET, PATIENCE, PHYSICAL_FUNCTION, interface, links, port_of, run, until

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

WORDS = ("-m", "kube_rdma.cli.main", "verify", "--hardware-selftest")
SELFTEST = (sys.executable, *WORDS)


@pytest.fixture
def function():
    """The interface of a virtual function, up; its physical one is up too."""
    physical = interface(PHYSICAL_FUNCTION)
    run("ip", "link", "set", physical, "up")
    folder = NET / physical / "device"
    (folder / "sriov_numvfs").write_text("1")
    until(lambda: any(folder.glob("virtfn0/net/*")))
    (path,) = folder.glob("virtfn0/net/*")
    run("ip", "link", "set", path.name, "up")
    yield path.name
    (folder / "sriov_numvfs").write_text("0")


@pytest.fixture
def node(cards, function, link):
    """Soft-RoCE on a card with an address, and on a virtual function."""
    run("ip", "address", "add", "192.168.50.11/24", "dev", cards[0])
    for name, on in (("rxe0", cards[0]), ("rxev", function)):
        link(name, on)
        until(lambda name=name: port_of(name).state is PortState.ACTIVE)
    return cards[0], function


def picture():
    """What the node's own tools show of its interfaces, functions and RDMA devices."""
    shown = json.loads(run("ip", "-json", "-details", "address", "show"))
    keys = ("ifname", "mtu", "address", "ifalias", "vfinfo_list")
    found = [
        (
            *(str(one.get(key)) for key in keys),
            "UP" in one["flags"],
            [a["local"] for a in one["addr_info"] if a.get("scope") == "global"],
        )
        for one in shown
    ]
    rdma = [(one["ifname"], one["netdev"]) for one in json.loads(run("rdma", "-j", "link"))]
    return sorted(found), run("ip", "link", "show", interface(PHYSICAL_FUNCTION)), sorted(rdma)


def test_every_plan_passes_and_the_node_is_as_before(node):
    """The card is named, so it moves itself too, with its address."""
    before = picture()
    words = (*SELFTEST, "--card", "rxe0", "--card", node[1], "--yes")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines()[1:6]]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("rxe0", "macvlan", "✓"),
        ("rxe0", "ipvlan", "✓"),
        ("rxe0", "take", "✓"),
        ("rxev", "take", "✓"),
        ("rxev", "function", "✓"),
    ], done.stdout + done.stderr
    assert "5 of 5 plans passed." in done.stdout
    assert done.returncode == 0
    assert picture() == before


def test_it_only_tells_without_yes_and_what_the_node_is_reached_through_is_refused(node):
    card, function = node
    run("ip", "route", "add", "default", "dev", card)
    before = picture()
    try:
        text = run(*SELFTEST, "--card", card, "--card", function)
    finally:
        run("ip", "route", "delete", "default")
    assert picture() == before
    assert f"not tried: the node itself is reached through {card}" in text
    assert f"take {function} from the node as kr-selftest" in text
    assert f"Warning: {function} leaves the node" in text


@pytest.mark.slow
def test_a_signal_ends_it_and_all_comes_back(node):
    before = picture()
    with subprocess.Popen((*SELFTEST, "--yes"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("CARD")
        until(lambda: process.poll() is not None or "rxev" not in links() or not on_node(node[1]))
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(PATIENCE) == 130
    assert "stopped" in rest
    assert picture() == before


def on_node(name):
    """Whether an interface is here and not in the self-test's namespace."""
    return Path(NET, name).exists()
