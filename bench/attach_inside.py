"""What `attach-vm` does in the bare machine (kube_rdma_lab/bare): two tests for the pytest there.

Each makes the node of `attach` on a card of that machine, lets pods come and go and records what it
measured. A macvlan gets Soft-RoCE of its own, and its GID is waited for; a virtual function moves
into the pod, set up by its physical one. Journals are in memory there, as everything is that can be
written.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.attach_kubelet import kubelet
from bench.attach_node import KUBELET, Node, Scene, running
from kube_rdma.hardware.survey import take_survey
from kube_rdma.model.device import PortState
from kube_rdma.model.pools import Mode, Pool, PoolSpec, Selector
from kube_rdma.pools.rules.discovery import judge
from kube_rdma.pools.rules.pools import resolve
from kube_rdma.pools.rules.selection import cards

ROUNDS, WARM = 8, 2
RESOURCE = "rdma/bench"
NET = Path("/sys/class/net")
SETTINGS = {"vlan": 100, "vlanQoS": 3, "spoofchk": "off", "trust": "on", "max_tx_rate": 100}
PATIENCE = 20.0  # seconds, for what the kernel does in its own time

Record = Callable[[str, object], None]


def test_macvlan_with_soft_roce(tmp_path: Path, record_property: Record) -> None:
    """A NIC on a card that pods share."""
    name = _interfaces("virtio_net")[0]
    _run("ip", "link", "set", name, "up")
    _run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", name)
    _until(lambda: take_survey().devices[0].ports[0].state is PortState.ACTIVE)
    try:
        _measure(tmp_path, _pool(Mode.SHARED_MULTI, name), {"type": "macvlan"}, record_property)
    finally:
        _run("rdma", "link", "delete", "rxe0")


def test_virtual_function(tmp_path: Path, record_property: Record) -> None:
    """A NIC that is a function of its own, with settings."""
    (physical,) = _interfaces("igb")
    _run("ip", "link", "set", physical, "up")
    count = NET / physical / "device" / "sriov_numvfs"
    count.write_text("1")
    try:
        _until(lambda: _interfaces("igbvf"))
        (name,) = _interfaces("igbvf")
        wanted = {"type": "sriov", **SETTINGS}
        _measure(tmp_path, _pool(Mode.SRIOV, name), wanted, record_property)
    finally:
        count.write_text("0")


def _measure(folder: Path, pool: Pool, wanted: dict[str, Any], record: Record) -> None:
    """Pods and the floor in turns; what each round took, as JSON."""
    scene = Scene({"net": (wanted, RESOURCE)}, take_survey, {RESOURCE: pool})
    with kubelet(folder / KUBELET, RESOURCE, pool.shares[0].id):
        rounds = asyncio.run(_rounds(folder, scene))
    record("rounds", json.dumps(rounds[WARM:]))


async def _rounds(folder: Path, scene: Scene) -> list[dict[str, dict[str, Any]]]:
    async with running(folder, scene) as node:
        return [await _round(node) for _ in range(WARM + ROUNDS)]


async def _round(node: Node) -> dict[str, dict[str, Any]]:
    return {"inside": await node.inside(1), "floor": await node.floor(1)}


def _pool(mode: Mode, interface: str) -> Pool:
    survey = take_survey()
    spec = PoolSpec(RESOURCE, mode, "bench", (Selector(interfaces=(interface,)),))
    ((pool,), _) = resolve((spec,), cards(survey, judge(survey)), survey)
    assert pool.shares, f"{interface} is a card that pods can have"
    return pool


def _interfaces(driver: str) -> list[str]:
    """Those of this driver, sorted by their place; the order in which they were found is not."""
    names = {
        (path / "device").resolve(): path.name
        for path in NET.iterdir()
        if (path / "device" / "driver").resolve().name == driver
    }
    return [names[place] for place in sorted(names)]


def _run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=60)


def _until(condition: Callable[[], object]) -> None:
    """Wait for something that the kernel announces to nobody."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the kernel did not get ready"
        time.sleep(0.02)
