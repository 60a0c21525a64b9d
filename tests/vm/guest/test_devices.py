"""`kube-rdma devices` as a process on the real machine: a recorded node shows the same again."""

from __future__ import annotations

import json
import sys

import pytest

from .world import run

pytestmark = pytest.mark.kernel("lab.kernel=user-mode")

DEVICES = (sys.executable, "-m", "kube_rdma.cli.main", "devices")


def test_what_is_recorded_of_a_real_node_shows_the_same_picture(cards, link, tmp_path):
    """Ports, GIDs, doors and seats of the soft devices, and the GPU."""
    run("ip", "address", "add", "192.168.50.11/24", "dev", cards[0])
    for number, card in enumerate(cards):
        link(f"rxe{number}", card)
    live = None
    while live != (before := json.loads(run(*DEVICES, "-o", "json"))):
        live = before  # GIDs come a moment after their address
    tree = str(tmp_path / "tree")
    run(*DEVICES, "--record", tree)
    recorded = json.loads(run(*DEVICES, "--sysfs", tree, "-o", "json"))
    assert len(live["devices"]) == 2
    assert recorded["devices"] == live["devices"]
    assert recorded.get("gpus") == live.get("gpus")
