"""The ghosts' claim driver: every GPU of the node is a device of driver gpu.nvidia.com.

Runs in a pod of each node (claims.yaml), on the product's image. It publishes a ResourceSlice with
attributes that NVIDIA's driver gives (cmd/gpu-kubelet-plugin/deviceinfo.go), and tells the kubelet
that each claim is prepared. A ghost computes nothing, so a container gets no device node: only the
kubelet records its claim.

With OFFERS=cards it stands for DRANET in the same way (card_claims.yaml). RDMA devices on PCI are
then driver dra.net's, with attributes of kubernetes-sigs/dranet pkg/apis/attributes.go. Nothing is
attached to a pod.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kube_base.errors import Refused
from kube_client.kinds import NOTHING, ObjectCodec, Owner, Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.resource_api import (
    PCI_BUS_ID,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    resource_claim,
)
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kubelet.claim_plugin import ClaimHandlers, ClaimPlugin
from kube_rdma.lib import logs
from kube_rdma.lib.logs import until_signal
from kube_rdma.model.claims.claim import ClaimName, PreparedDevice
from kube_rdma.model.device import Device, Gpu

DRIVER = "gpu.nvidia.com"
CARD_DRIVER = "dra.net"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
SYSFS = Path("/host/sys")
_SLICE = RESOURCE_SLICE.read_as(ObjectCodec.of(dict[str, Any]), NOTHING)


def slice_spec(node: str, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """Return the spec of a node's only slice, with its GPUs."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                PCI_BUS_ID: {"string": str(gpu.position.pci)},
                "resource.kubernetes.io/pcieRoot": {"string": gpu.position.root},
                **_numa(gpu),
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-ghost-{number}"},
            },
        }
        for number, gpu in enumerate(gpus)
    ]
    return _only_slice(DRIVER, node, devices)


def _only_slice(driver: str, node: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }


def _numa(gpu: Gpu) -> dict[str, Any]:
    """Return the NUMA node as a slice's attribute; empty if the firmware names none."""
    numa = gpu.position.numa_node
    return {} if numa is None else {"resource.kubernetes.io/numaNode": {"int": numa}}


def card_slice_spec(node: str, cards: Sequence[Device]) -> dict[str, Any]:
    """Return the spec of a node's only slice: its RDMA devices on PCI, as DRANET names them."""
    devices = [
        {
            "name": "pci-" + re.sub("[:.]", "-", str(card.pci)),
            "attributes": {
                "dra.net/pciAddress": {"string": str(card.pci)},
                "dra.net/rdma": {"bool": True},
                "dra.net/rdmaDevice": {"string": card.name},
            },
        }
        for card in cards
        if card.pci
    ]
    return _only_slice(CARD_DRIVER, node, devices)


async def publish(cluster: Cluster, node: str, spec: dict[str, Any]) -> None:
    """Create the ResourceSlice, owned by the Node, unless an earlier process did.

    Raise Refused if there is no such Node.
    """
    stored = await cluster.get(NODE, node)
    if stored is None:
        raise Refused(f"there is no node {node}", remedy="Set NODE to the name of a node")
    name = f"{node}-{spec['driver']}-ghosts"
    if await cluster.get(_SLICE, name):
        return
    owner = Owner(NODE.api_version, NODE.kind, node, stored.uid)
    await cluster.create(_SLICE, Wanted(name, spec=spec, owners=(owner,)))


async def drive(node: str, spec: dict[str, Any]) -> None:
    """Publish the slice, then answer the kubelet until cancelled."""
    driver = spec["driver"]
    async with connect() as cluster:
        await publish(cluster, node, spec)

        async def prepare(claim: ClaimName) -> Sequence[PreparedDevice]:
            stored = await cluster.get(RESOURCE_CLAIM, claim.name, claim.namespace)
            devices = resource_claim(stored).devices if stored and stored.uid == claim.uid else ()
            return [PreparedDevice(d.pool, d.device) for d in devices if d.driver == driver]

        async def unprepare(_: ClaimName) -> None:
            """Do nothing when a claim ends, for ghosts need no cleanup."""

        await ClaimPlugin(REGISTRY, driver, ClaimHandlers(prepare, unprepare)).run()


def main() -> None:
    """Publish this node's GPUs or cards by DRA until SIGTERM."""
    logs.configure()
    node, survey = os.environ["NODE"], read_survey(SYSFS)
    is_of_cards = os.environ.get("OFFERS") == "cards"
    spec = card_slice_spec(node, survey.devices) if is_of_cards else slice_spec(node, survey.gpus)
    asyncio.run(until_signal(drive(node, spec)))


if __name__ == "__main__":
    main()
