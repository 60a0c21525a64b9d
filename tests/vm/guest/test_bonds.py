"""A real bond of two cards: what stands on it and what does not, and a pod that outlives a card.

The pod's macvlan and its Soft-RoCE device are made by kube-rdma's own steps. Its peer is behind the
third card, on the same wire.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.pod.steps import open_pod
from kube_rdma.model.attach import steps
from kube_rdma.model.device import PlannedHostLink, PortState

from .masters import expected, facts
from .world import (
    CARDS,
    NET,
    PATIENCE,
    PHYSICAL_FUNCTION,
    inside,
    interface,
    links,
    port_of,
    run,
    until,
)

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

BOND, POD, PEER = "bonded", "on-bond", "peer"
PODS, PEERS = "10.9.7.1", "10.9.7.2"


def test_a_slave_of_a_bond_names_it_and_takes_no_macvlan_itself():
    run("modprobe", "bonding")
    assert facts("bond") == expected("bond")


@pytest.fixture(scope="module")
def bond():
    """Two cards as one, the second in reserve; and a peer on the same wire."""
    run("modprobe", "bonding")
    cards = [interface(mac) for mac in CARDS]
    run("ip", "link", "add", BOND, "type", "bond", "mode", "active-backup", "miimon", "50")
    for card in cards:
        run("ip", "link", "set", card, "down")
        run("ip", "link", "set", card, "master", BOND)
    run("ip", "link", "set", BOND, "up")
    peer = interface(PHYSICAL_FUNCTION)
    run("ip", "link", "set", peer, "up")
    run("ip", "netns", "add", PEER)
    run("ip", "link", "add", "net1", "netns", PEER, "link", peer, "type", "macvlan")
    run("ip", "-n", PEER, "address", "add", f"{PEERS}/24", "dev", "net1")
    run("ip", "-n", PEER, "link", "set", "net1", "up")
    run(*inside(PEER), "rdma", "link", "add", "rxe-peer", "type", "rxe", "netdev", "net1")
    yield cards
    run("ip", "netns", "delete", PEER)
    run("ip", "link", "delete", BOND)
    until(lambda: not links())
    for card in cards:
        run("ip", "link", "set", card, "up")


@pytest.fixture
def pod(bond):
    """A pod with a macvlan on the bond and a Soft-RoCE device on that."""
    run("ip", "netns", "add", POD)
    parent = PlannedHostLink(int((NET / BOND / "ifindex").read_text()), BOND)
    with open_pod(Path("/run/netns", POD)) as namespace:
        for step in (
            steps.MakeLink(
                steps.VirtualKind.MACVLAN, parent, "net1", "kube-rdma c1/net1", mode="bridge"
            ),
            steps.AddAddress("net1", ip_address(PODS), 24),
            steps.SetLink("net1"),
            steps.MakeRdma("rxe-pod", "rxe", "net1"),
            steps.AwaitGid("rxe-pod", "net1", ip_address(PODS)),
        ):
            namespace.run(step)
    yield POD
    run("ip", "netns", "delete", POD)
    until(lambda: "rxe-pod" not in links())
    for card in bond:
        run("ip", "link", "set", card, "up")


def active():
    """The card that the bond sends through now."""
    return (NET / BOND / "bonding/active_slave").read_text().strip()


def reach():
    """The peer answers the pod."""
    run(*inside(POD), "ping", "-c", "3", PEERS)


def gid(device, address):
    """The index of an address's GID, once its port is up."""
    until(lambda: port_of(device).state is PortState.ACTIVE)
    high, low = (int.from_bytes(ip_address(address).packed[at : at + 2]) for at in (0, 2))
    wanted = f"0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}"
    (index,) = until(lambda: [g.index for g in port_of(device).gids if g.value == wanted])
    return str(index)


def write():
    """The pod writes into its peer's memory."""
    words = ("ib_write_bw", "-F", "--report_gbits", "-s", "4096", "-u", "18", "-n", "10")
    server = (*inside(PEER), *words, "-d", "rxe-peer", "-x", gid("rxe-peer", PEERS))
    client = (*inside(POD), *words, "-d", "rxe-pod", "-x", gid("rxe-pod", PODS), PEERS)
    with ended(subprocess.Popen(server, stdout=subprocess.DEVNULL)) as serves:
        until(lambda: serves.poll() is not None or ":18515" in run(*inside(PEER), "ss", "-ltn"))
        table = run(*client)
        assert serves.wait(PATIENCE) == 0
    (row,) = [line for line in table.splitlines() if line.startswith(" 4096")]
    assert row.split()[1] == "10"


@contextmanager
def ended(process):
    """No process outlives a test."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_pod_on_a_bond_outlives_each_of_its_cards(bond, pod):
    """One goes, then, when it is back, the other: packets and verbs take what is left.

    A connection that stands then is another matter: Soft-RoCE flushes it when the bond
    changes cards, even when asked to; cards of silicon change below their driver.
    """
    reach()
    first = active()
    for card in (first, *(set(bond) - {first})):
        run("ip", "link", "set", card, "down")
        until(lambda card=card: active() not in ("", card))
        reach()
        write()
        run("ip", "link", "set", card, "up")
