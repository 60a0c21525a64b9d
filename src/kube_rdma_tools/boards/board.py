"""An example machine as the scheduler sees it: slices of its cards and GPUs, and where they are.

First step of a measurement. The rules of the agent make the slices of cards from the machine's
tree, the lab's claim driver makes the slice of GPUs (kube_rdma_lab/ghost).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from kube_base.frozen import Frozen
from kube_client import wire
from kube_rdma.adapters.cluster.kinds.resource_api import RESOURCE_SLICE, wanted_slice
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.claims.rules.publication import PoolSite, pool_slices
from kube_rdma.claims.rules.shape import claim_offer, slices
from kube_rdma.hardware import machines
from kube_rdma.install.rules.presets import PRESETS
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.pools import RailRecord
from kube_rdma.model.survey import Survey
from kube_rdma.pools.config import parse_config
from kube_rdma.pools.rules.node_health import node_cards
from kube_rdma.pools.rules.pools import resolve
from kube_rdma.pools.rules.rails import numbers, recorded
from kube_rdma_lab.ghost.claim_driver import DRIVER as GPU_DRIVER
from kube_rdma_lab.ghost.claim_driver import slice_spec

NODE = "node-1"
_NUMA = "resource.kubernetes.io/numaNode"
_ROOT = "resource.kubernetes.io/pcieRoot"


class BoardPosition(Frozen):
    """The position of a device on a board: its PCIe root and its NUMA node, None if unknown."""

    root: str
    numa_node: int | None


class CardPool(StrEnum):
    """The two ways to offer a node's cards, each with the name of the preset that does it."""

    WHOLE = "rails"
    SHARED = "default"


class GpuDriver(StrEnum):
    """The age of NVIDIA's DRA driver: slices of a NEW one have the NUMA node."""

    NEW = "new"
    OLD = "old"


class Board(Frozen):
    """An example machine; `places` has the true position of each device by driver and name."""

    name: str
    gpus: tuple[BoardPosition, ...]
    cards: tuple[BoardPosition, ...]
    places: Mapping[tuple[str, str], BoardPosition]
    slices: Mapping[tuple[CardPool, GpuDriver], str]
    """The ResourceSlices of the node as a JSON list."""


def boards() -> Iterator[Board]:
    """Yield the example machines of WELL that have GPUs and cards, sorted by name."""
    return (one for one in map(board, machines.names(machines.WELL)) if one.gpus and one.cards)


def board(name: str) -> Board:
    """Return the example machine of a name; raise Refused if there is none."""
    survey = read_survey(machines.machine(name))
    gpus = tuple(BoardPosition(gpu.position.root, gpu.position.numa_node) for gpu in survey.gpus)
    gpu_slice = slice_spec(NODE, survey.gpus)
    places = {
        (GPU_DRIVER, device["name"]): place
        for device, place in zip(gpu_slice["devices"], gpus, strict=True)
    }
    of_cards = {pool: _card_slices(survey, pool) for pool in CardPool}
    for listed in of_cards.values():
        for device in (one for part in listed for one in part["spec"].get("devices", ())):
            places[DRIVER, device["name"]] = _place(device["attributes"])
    of_gpus = {driver: _gpu_slices(gpu_slice, driver) for driver in GpuDriver}
    whole = (one for part in of_cards[CardPool.WHOLE] for one in part["spec"].get("devices", ()))
    return Board(
        name,
        gpus,
        tuple(_place(device["attributes"]) for device in whole if not device.get("taints")),
        places,
        {
            (pool, driver): json.dumps([*of_cards[pool], *of_gpus[driver]])
            for pool in CardPool
            for driver in GpuDriver
        },
    )


def _card_slices(survey: Survey, pool: CardPool) -> list[dict[str, Any]]:
    """Return the card slices that an agent with the pool's preset publishes on a new node."""
    wished = parse_config(PRESETS[pool]["agent"]["config"].encode(), pool).pools
    cards = node_cards(survey)
    pools, _ = resolve(wished, cards, survey)
    offered = [card for made in pools for card in made.cards]
    rails = numbers(recorded(RailRecord(), offered, cards, (), idle=True), cards, ())
    parts = slices(claim_offer(pools, rails.get).cards, {})
    made = pool_slices(PoolSite(NODE, "uid"), 1, parts)
    texts = (wire.document(RESOURCE_SLICE, wanted_slice(part)) for part in made)
    return [json.loads(text) for text in texts]


def _gpu_slices(spec: dict[str, Any], driver: GpuDriver) -> list[dict[str, Any]]:
    """Return the slice of a node's GPUs, none without GPUs; the older driver's lacks NUMA nodes."""
    if not spec["devices"]:
        return []
    if driver is GpuDriver.OLD:
        devices = [{**one, "attributes": _without_numa(one)} for one in spec["devices"]]
        spec = {**spec, "devices": devices}
    return [{"metadata": {"name": f"{NODE}-gpus"}, "spec": spec}]


def _without_numa(device: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in device["attributes"].items() if name != _NUMA}


def _place(attributes: Mapping[str, Any]) -> BoardPosition:
    return BoardPosition(
        attributes.get(_ROOT, {}).get("string", ""), attributes.get(_NUMA, {}).get("int")
    )
