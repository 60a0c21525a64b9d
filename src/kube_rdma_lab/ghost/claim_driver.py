"""The ghosts' claim driver: every GPU of the node is a device of driver gpu.nvidia.com.

Runs in a pod of each node that shows GPUs (claims.yaml), on the product's image: it publishes a
ResourceSlice with attributes that NVIDIA's driver gives (its deviceinfo.go, in cmd/gpu-kubelet-
plugin/deviceinfo.go), and tells the kubelet that each claim is prepared. A ghost computes nothing,
so a container gets nothing of it but what the kubelet notes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kube_base.errors import Refused
from kube_client.kinds import NOTHING, ObjectCodec, Owner, Wanted
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.resource_slice import (
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    STANDARD,
    claimed_devices,
)
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.adapters.kubelet.claim_plugin import ClaimAnswers, ClaimPlugin
from kube_rdma.model.claims.prepared import ClaimName, PreparedDevice
from kube_rdma.model.device import Gpu
from kube_rdma.programs import logs
from kube_rdma.programs.process import until_signal

DRIVER = "gpu.nvidia.com"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
SYSFS = Path("/host/sys")
_SLICE = RESOURCE_SLICE.read_as(ObjectCodec.of(dict[str, Any]), NOTHING)


def slice_spec(node: str, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """The spec of the one slice of a node."""
    return {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": f"gpu-{number}",
                "attributes": {
                    STANDARD: {"string": str(gpu.seat.pci)},
                    "resource.kubernetes.io/pcieRoot": {"string": gpu.seat.root},
                    **_numa(gpu),
                    "type": {"string": "gpu"},
                    "uuid": {"string": f"GPU-ghost-{number}"},
                },
            }
            for number, gpu in enumerate(gpus)
        ],
    }


def _numa(gpu: Gpu) -> dict[str, Any]:
    """Left out where the firmware names none, as by k8s.io/dynamic-resource-allocation."""
    numa = gpu.seat.numa_node
    return {} if numa is None else {"resource.kubernetes.io/numaNode": {"int": numa}}


async def publish(cluster: Cluster, node: str, gpus: Sequence[Gpu]) -> None:
    """Write the slice, which goes when the node does; one of an earlier process stays."""
    stored = await cluster.get(NODE, node)
    if stored is None:
        raise Refused(f"there is no node {node}", remedy="Set NODE to the name of a node")
    name = f"{node}-gpu-ghosts"
    if await cluster.get(_SLICE, name):
        return
    owner = Owner(NODE.api_version, NODE.kind, node, stored.uid)
    await cluster.create(_SLICE, Wanted(name, spec=slice_spec(node, gpus), owners=(owner,)))


async def drive(node: str, gpus: Sequence[Gpu]) -> None:
    """Publish, then answer the kubelet until cancelled."""
    async with connect() as cluster:
        await publish(cluster, node, gpus)

        async def prepare(claim: ClaimName) -> Sequence[PreparedDevice]:
            stored = await cluster.get(RESOURCE_CLAIM, claim.name, claim.namespace)
            devices = claimed_devices(stored) if stored and stored.uid == claim.uid else ()
            return [PreparedDevice(d.pool, d.name) for d in devices if d.driver == DRIVER]

        async def unprepare(_: ClaimName) -> None:
            """A ghost holds nothing."""

        await ClaimPlugin(REGISTRY, DRIVER, ClaimAnswers(prepare, unprepare)).run()


def main() -> None:
    """Offer this node's GPUs until SIGTERM."""
    logs.configure()
    asyncio.run(until_signal(drive(os.environ["NODE"], read_survey(SYSFS).gpus)))


if __name__ == "__main__":
    main()
