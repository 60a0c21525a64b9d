"""Reads a topology that a user wrote: YAML or JSON in, a Topology out, or its faults.

`lab up --topology FILE` calls it. From then on the lab knows the topology by its `reference`, so a
later change of the file changes no running lab. Faults name line and field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from kube_base.errors import Refused
from kube_rdma.lib.text import document, reader
from kube_rdma.lib.text.document import Document, shown
from kube_rdma_lab import topology
from kube_rdma_lab.native import trees
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import (
    LLDP_SECONDS,
    MAX_MACHINES,
    MAX_NODES,
    MAX_VFS,
    GpuGhost,
    NicKind,
    NodeKind,
    NodeSpec,
    RdmaNetns,
    RdmaNic,
    Topology,
    TopologyManager,
)

ENDINGS = (".yaml", ".yml", ".json")
MAX_RAILS = 8
MAX_GPUS = 8
MAX_LEAVES = 16  # of a lab, with a bridge for each rail
MAX_PORTS = 64  # of a node's cards; a tree may have virtual functions
MAX_GATES = 64
MIN_MEMORY, MAX_MEMORY = 2048, 16384
# Interfaces that a node has anyway.
TAKEN = ("lo", "eth0", "cni0")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


LeafName = Annotated[str, Field(pattern=r"^([a-z][a-z0-9-]{0,11})?$")]
GateName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{1,99}$")]
# What kube-apiserver takes in --runtime-config.
GroupName = Annotated[
    str,
    Field(pattern=r"^(api/(all|ga|beta|alpha)|([a-z0-9.-]{1,99}/)?v[0-9]+((alpha|beta)[0-9]+)?)$"),
]


class NicEntry(_Entry):
    """A card of a node in a topology file."""

    name: str = Field(pattern=r"^[a-z][a-z0-9]{0,11}$")
    rail: int = Field(ge=0, lt=MAX_RAILS)
    numa_node: int = Field(0, ge=0, le=1)
    kind: Literal["virtio", "igb"] = "virtio"
    soft_roce: bool = True
    vfs: int = Field(0, ge=0, le=MAX_VFS)


class GpuEntry(_Entry):
    """Stand-ins for GPUs at one place, in a topology file."""

    numa_node: int = Field(0, ge=0, le=1)
    switch: int = Field(0, ge=0, le=4)
    count: int = Field(1, ge=1, le=MAX_GPUS)


class NodeEntry(_Entry):
    """A node in a topology file: QEMU's, a user-mode kernel, or a native node."""

    native: bool = False
    user_mode: bool = False
    tree: str = ""
    nics: list[NicEntry] = []
    gpus: list[GpuEntry] = []
    leaves: list[LeafName] = Field([], max_length=MAX_PORTS)
    memory_mib: int = Field(3072, ge=MIN_MEMORY, le=MAX_MEMORY)
    rdma_netns: Literal["shared", "exclusive"] = "shared"
    rdma_at_boot: bool = True
    topology_manager: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"


class TopologyEntry(_Entry):
    """The whole content of a topology file."""

    summary: str = "from a file"
    nodes: list[NodeEntry] = Field(max_length=MAX_NODES)
    # Without quotes 1.37 is a number.
    release: Annotated[Literal["newest", "older", "1.34", "1.37"], BeforeValidator(str)] = "newest"
    feature_gates: dict[GateName, bool] = Field({}, max_length=MAX_GATES)
    api_groups: dict[GroupName, bool] = Field({}, max_length=MAX_GATES)


# What only a machine has.
HARDWARE = ("user_mode", "nics", "gpus", "memory_mib", "rdma_netns", "rdma_at_boot")

# What may stand in a field; no name means two things.
ALLOWED = {
    "name": "1 to 12 small letters and digits, a letter first, such as ens2f0",
    "rail": f"a whole number from 0 to {MAX_RAILS - 1}",
    "numa_node": "0 or 1",
    "kind": "virtio, igb",
    "soft_roce": "true, false",
    "vfs": f"a whole number from 0 to {MAX_VFS}",
    "switch": "a whole number from 1 to 4, or 0 for none",
    "count": f"a whole number from 1 to {MAX_GPUS}",
    "memory_mib": f"a whole number from {MIN_MEMORY} to {MAX_MEMORY}",
    "rdma_netns": ", ".join(RdmaNetns),
    "rdma_at_boot": "true, false",
    "topology_manager": ", ".join(TopologyManager),
    "summary": "a text",
    "native": "true, false",
    "user_mode": "true, false",
    "tree": "a tree of sysfs by its name or its folder",
    "leaves": "the leaf switch of each card in their order, each 1 to 12 small letters, digits and"
    f' hyphens, a letter first, such as leaf-a, or "" for none; up to {MAX_PORTS}',
    "release": ", ".join(Release),
    "feature_gates": f"up to {MAX_GATES} feature gates, each with true or false",
    "api_groups": f"up to {MAX_GATES} API versions, each with true or false, such as"
    " resource.k8s.io/v1alpha3, v1, api/all, api/ga, api/beta or api/alpha",
    "nodes": f"a list of up to {MAX_NODES} nodes, each with fields out of"
    f" {', '.join(NodeEntry.model_fields)}",
    "nics": f"a list of cards, each with fields out of {', '.join(NicEntry.model_fields)}",
    "gpus": f"a list of ghosts, each with fields out of {', '.join(GpuEntry.model_fields)}",
}
MODELS: dict[str, type[BaseModel]] = {"nodes": NodeEntry, "nics": NicEntry, "gpus": GpuEntry}


def choose(wanted: str, nodes: int | None, lldp_seconds: int = LLDP_SECONDS) -> Topology:
    """Return the topology that the options --topology, --nodes and --lldp-seconds name.

    `wanted` is a topology's name, or a file if it ends like one. Raise Refused as
    `topology.find`, `load` and `with_nodes` do.
    """
    is_file = wanted.endswith(ENDINGS)
    chosen = load(Path(wanted)) if is_file else topology.find(wanted)
    chosen = replace(chosen, lldp_seconds=lldp_seconds)
    return chosen if nodes is None else chosen.with_nodes(nodes)


def load(path: Path) -> Topology:
    """Return the topology in a file, named as the file is.

    Raise Refused if the file cannot be read, or as `parse` does.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        remedy = f"Name a file that can be read, or one of {', '.join(topology.TOPOLOGIES)}"
        raise Refused(
            f"the topology cannot be read ({error.strerror})", remedy=remedy, where=str(path)
        ) from error
    return parse(data, str(path))


def parse(data: bytes, source: str) -> Topology:
    """Parse a topology file's text; `source` is the file's path.

    Raise Refused with all faults of single fields. If there are none, raise it with all
    contradictions between fields or nodes.
    """
    text = reader.read(data, source)
    if not isinstance(text.value, dict):
        raise Refused(
            "a topology is a document with fields",
            remedy=f"Begin with `nodes:`, {ALLOWED['nodes']}",
            where=text.where(()),
        )
    try:
        entry = TopologyEntry.model_validate(text.value)
    except ValidationError as error:
        raise Refused.all([_refusal(one, text) for one in error.errors()]) from None
    if faults := list(_contradictions(entry, text)):
        raise Refused.all(faults)
    folder = Path(source).absolute().parent
    nodes = tuple(_node(index, node, folder) for index, node in enumerate(entry.nodes, start=1))
    return Topology(
        Path(source).name,
        entry.summary,
        nodes,
        Release(entry.release),
        feature_gates=entry.feature_gates,
        api_groups=entry.api_groups,
    )


def _refusal(error: ErrorDetails, text: Document) -> Refused:
    """Turn a validation error of pydantic into a sentence with a remedy."""
    path = error["loc"]
    fields = [part for part in path if isinstance(part, str)]
    last = fields[-1]
    match error["type"]:
        case "extra_forbidden":
            parent = MODELS[fields[-2]] if len(fields) > 1 else TopologyEntry
            allowed = list(parent.model_fields)
            near = get_close_matches(last, allowed, n=1)
            hint = f"Did you mean {near[0]}? Known" if near else "Remove it; known"
            return Refused(
                "there is no such field",
                remedy=f"{hint}: {', '.join(allowed)}",
                where=text.where(path, key=True),
            )
        case "missing":
            remedy = f"Add {last}: {ALLOWED[last]}"
            return Refused("the field is missing", remedy=remedy, where=text.where(path))
        case _:
            return _not_allowed(error["input"], path, text)


def _not_allowed(value: object, path: document.Path, text: Document) -> Refused:
    # Inside of a list or a mapping it is the field that has it.
    field = next(part for part in reversed(path) if part in ALLOWED)
    problem = f"{shown(value)} is not a value of this field"
    return Refused(problem, remedy=f"Allowed: {ALLOWED[field]}", where=text.where(path))


def _contradictions(entry: TopologyEntry, text: Document) -> Iterator[Refused]:
    """Yield the faults of a topology that concern several fields or nodes."""
    machines = [number for number, node in enumerate(entry.nodes) if not node.native]
    for number in machines[MAX_MACHINES:]:
        problem = f"the lab has {MAX_MACHINES} machines already"
        yield Refused(problem, remedy="Write native: true", where=text.where(("nodes", number)))
    leaves = {leaf for node in entry.nodes for leaf in node.leaves if leaf}
    if len(leaves) > MAX_LEAVES:
        problem = f"the nodes have {len(leaves)} leaf switches"
        yield Refused(problem, remedy=f"Keep {MAX_LEAVES} of them", where=text.where(("nodes",)))
    if machines and Release(entry.release) is Release.OLDER:
        problem = "a machine's containerd is of the newest release"
        remedy = "Write native: true at all nodes, or another release"
        yield Refused(problem, remedy=remedy, where=text.where(("release",)))
    for number, node in enumerate(entry.nodes):
        place: document.Path = ("nodes", number)
        yield from _of_kind(node, place, text)
        yield from _of_cards(node, place, text)
        yield from _of_ghosts(node, place, text)
        if node.user_mode:
            yield from _of_user_mode(node, place, text)


def _of_user_mode(node: NodeEntry, place: document.Path, text: Document) -> Iterator[Refused]:
    """Yield a fault for each field that a node with a user-mode kernel cannot have."""
    remedy = "Remove it, or leave user_mode out"
    if not node.rdma_at_boot:
        problem = "a user-mode kernel has RDMA from the beginning"
        yield Refused(problem, remedy=remedy, where=text.where((*place, "rdma_at_boot")))
    if node.topology_manager != "none":
        problem = "a user-mode kernel has no NUMA nodes, without which its kubelet does not start"
        yield Refused(problem, remedy=remedy, where=text.where((*place, "topology_manager")))
    for number, gpu in enumerate(node.gpus):
        if gpu.switch:
            problem = "a user-mode kernel has no switches"
            path = (*place, "gpus", number, "switch")
            yield Refused(problem, remedy=remedy, where=text.where(path))


def _kind(entry: NodeEntry) -> NodeKind:
    if entry.native:
        return NodeKind.NATIVE
    return NodeKind.USER_MODE if entry.user_mode else NodeKind.MACHINE


def _of_kind(node: NodeEntry, place: document.Path, text: Document) -> Iterator[Refused]:
    """Yield faults: fields that this kind of node lacks, too many leaves, an unknown tree."""
    if not node.native:
        if node.tree:
            remedy = "Write native: true, or give it nics instead"
            problem = "a machine has no tree of sysfs"
            yield Refused(problem, remedy=remedy, where=text.where((*place, "tree")))
        if len(node.leaves) > len(node.nics):
            problem = f"the node has {len(node.nics)} cards and leaves for {len(node.leaves)}"
            remedy = "Write one leaf for each of its nics"
            yield Refused(problem, remedy=remedy, where=text.where((*place, "leaves")))
        return
    for field in HARDWARE:
        if field in node.model_fields_set:
            remedy = "Remove it, or leave native out; its cards are those of a tree"
            problem = f"a native node has no {field}"
            yield Refused(problem, remedy=remedy, where=text.where((*place, field)))
    if node.tree:
        try:
            trees.check(_tree(node, Path(text.source).absolute().parent))
        except Refused as refused:
            where = text.where((*place, "tree"))
            yield Refused(refused.problem, remedy=refused.remedy, where=where)


def _tree(node: NodeEntry, folder: Path) -> str:
    """Return the tree's name, or its path, which may be written relative to `folder`."""
    return str(folder / node.tree) if "/" in node.tree else node.tree


def _of_cards(node: NodeEntry, place: document.Path, text: Document) -> Iterator[Refused]:
    names: set[str] = set(TAKEN)
    rails: set[int] = set()
    for number, nic in enumerate(node.nics):
        path = (*place, "nics", number)
        if nic.name in names:
            problem = f"the node has an interface {nic.name} already"
            yield Refused(problem, remedy="Choose another", where=text.where((*path, "name")))
        if nic.rail in rails:
            problem = f"another card of the node is on rail {nic.rail}"
            remedy = "Give each card of a node a rail of its own"
            yield Refused(problem, remedy=remedy, where=text.where((*path, "rail")))
        if nic.vfs and nic.kind != "igb":
            problem = f"a {nic.kind} card has no virtual functions"
            remedy = "Write kind: igb, or leave vfs out"
            yield Refused(problem, remedy=remedy, where=text.where((*path, "vfs")))
        rails.add(nic.rail)
        # Virtual functions are called after their card.
        names |= {nic.name, *(f"{nic.name}v{vf}" for vf in range(nic.vfs))}


def _of_ghosts(node: NodeEntry, place: document.Path, text: Document) -> Iterator[Refused]:
    count = sum(gpu.count for gpu in node.gpus)
    if count > MAX_GPUS:
        problem = f"the node has {count} ghosts"
        remedy = f"Keep {MAX_GPUS} of them"
        yield Refused(problem, remedy=remedy, where=text.where((*place, "gpus")))
    sockets: dict[int, int] = {}
    for number, gpu in enumerate(node.gpus):
        if gpu.switch and sockets.setdefault(gpu.switch, gpu.numa_node) != gpu.numa_node:
            problem = f"switch {gpu.switch} is on NUMA node {sockets[gpu.switch]}"
            remedy = "Name another switch, or the same numa_node"
            path = (*place, "gpus", number, "switch")
            yield Refused(problem, remedy=remedy, where=text.where(path))


def _node(index: int, entry: NodeEntry, folder: Path) -> NodeSpec:
    nics = (RdmaNic(**{**nic.model_dump(), "kind": NicKind(nic.kind)}) for nic in entry.nics)
    gpus = (GpuGhost(gpu.numa_node, gpu.switch) for gpu in entry.gpus for _ in range(gpu.count))
    return NodeSpec(
        index,
        tuple(nics),
        tuple(gpus),
        memory_mib=entry.memory_mib,
        rdma_netns=RdmaNetns(entry.rdma_netns),
        rdma_at_boot=entry.rdma_at_boot,
        topology_manager=TopologyManager(entry.topology_manager),
        kind=_kind(entry),
        tree=_tree(entry, folder),
        leaves=tuple(entry.leaves),
    )
