"""The document ``kind: CIDRPool`` of nv-ipam, and the IPPool that means the same here.

For `kube-rdma ip translate`. A CIDRPool gives each node a prefix of its own, which is perNode of an
IPPool's range. Fields and their meaning: nvidia-k8s-ipam, api/v1alpha1/cidrpool_type.go,
cidrpool_validate.go and helpers.go (a gateway index of 0 names no router but in a /31 and a /127).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import ConfigDict, Field

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam.pool_slices import entry
from kube_rdma.lib.text.document import Document, Value, of_value
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.go_typed import GoTyped
from kube_rdma.lib.text.ip_words import Cidr, IpAddress, Label
from kube_rdma.lib.text.typed import Many
from kube_rdma.model.ipam import IPPool

KIND = ("nv-ipam.nvidia.com", "CIDRPool")  # API group and kind
MOST_EXCLUDED = 1024  # addresses that perNodeExclusions come to in all slices


class IndexRange(GoTyped):
    """Addresses of every node's prefix, by their places in it."""

    start_index: int = Field(ge=0)
    end_index: int = Field(ge=0)


class ExcludedRange(GoTyped):
    """Addresses from the first to the last."""

    start_ip: IpAddress
    end_ip: IpAddress


class StaticAllocation(GoTyped):
    """The prefix of a node; without a node's name it is reserved."""

    node_name: str = ""
    gateway: IpAddress | None = None
    prefix: Cidr


class CidrRoute(GoTyped):
    """A route of each pod."""

    dst: Cidr


class CidrPoolSpec(GoTyped):
    """The fields of a CIDRPool."""

    cidr: Cidr
    gateway_index: int | None = Field(None, ge=0)
    per_node_network_prefix: int = Field(ge=1, le=128)
    exclusions: Many[ExcludedRange] = ()
    per_node_exclusions: Many[IndexRange] = ()
    static_allocations: Many[StaticAllocation] = ()
    node_selector: Any = None
    default_gateway: bool = False
    routes: Many[CidrRoute] = ()


class CidrPoolMetadata(GoTyped):
    """The name; other metadata of the object is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: Label


class CidrPoolObject(GoTyped):
    """A CIDRPool as nv-ipam reads it."""

    api_version: Literal["nv-ipam.nvidia.com/v1alpha1"]
    kind: Literal["CIDRPool"]
    metadata: CidrPoolMetadata
    spec: CidrPoolSpec
    status: Any = None


class TranslatedPool(Frozen):
    """The IPPool, and a sentence for each thing that it cannot say."""

    pool: IPPool
    notes: tuple[str, ...] = ()


def load(document: Document) -> TranslatedPool:
    """The IPPool that means the same; raise Refused with all faults of the CIDRPool."""
    manifest = validate(CidrPoolObject, document)
    spec = manifest.spec
    made: Value = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": manifest.metadata.name},
        "spec": {
            "ranges": [{"subnet": str(spec.cidr), "perNode": _per_node(spec)}],
            "excludes": list(_excludes(spec, document)),
            "routes": [{"dst": dst} for dst in _routes(spec)],
        },
    }
    source = f"{document.where(())} as an IPPool"
    return TranslatedPool(ip_pool.load(of_value(made, source)), tuple(_notes(spec)))


def _per_node(spec: CidrPoolSpec) -> dict[str, Value]:
    nodes = [
        entry(one.node_name, one.prefix, one.gateway)
        for one in spec.static_allocations
        if one.node_name
    ]
    per_node: dict[str, Value] = {"prefix": spec.per_node_network_prefix}
    if nodes:
        per_node["nodes"] = nodes
    if (index := _index(spec)) is not None:
        per_node["gatewayIndex"] = index
    return per_node


def _index(spec: CidrPoolSpec) -> int | None:
    """The gateway's place; 0 is none but in a subnet of two addresses or one."""
    is_pair = spec.per_node_network_prefix >= spec.cidr.max_prefixlen - 1
    return spec.gateway_index if spec.gateway_index or is_pair else None


def _excludes(spec: CidrPoolSpec, document: Document) -> Iterator[str]:
    for reserved in spec.exclusions:
        yield f"{reserved.start_ip}-{reserved.end_ip}"
    for allocation in spec.static_allocations:
        if not allocation.node_name:
            yield str(allocation.prefix)
    if not spec.per_node_exclusions:
        return
    slices = 1 << max(0, spec.per_node_network_prefix - spec.cidr.prefixlen)
    if slices * len(spec.per_node_exclusions) > MOST_EXCLUDED:
        raise Refused(
            f"perNodeExclusions exclude addresses of {slices} prefixes, and an IPPool names each",
            remedy="Divide cidr into several pools, or leave perNodeExclusions out",
            where=document.where(("spec", "perNodeExclusions")),
        )
    for node_slice in spec.cidr.subnets(new_prefix=spec.per_node_network_prefix):
        for places in spec.per_node_exclusions:
            last = min(places.end_index, node_slice.num_addresses - 1)
            if places.start_index <= last:
                yield f"{node_slice[places.start_index]}-{node_slice[last]}"


def _routes(spec: CidrPoolSpec) -> Iterator[str]:
    if spec.default_gateway:
        yield "0.0.0.0/0" if spec.cidr.version == 4 else "::/0"
    yield from (str(route.dst) for route in spec.routes)


def _notes(spec: CidrPoolSpec) -> Iterator[str]:
    if spec.node_selector:
        yield (
            "nodeSelector is not translated: nodes whose pods name the pool take slices of it, "
            "and no others"
        )
    if spec.gateway_index == 0 and _index(spec) is None:
        yield "gatewayIndex 0 names no router here, as in nv-ipam: it is the subnet's own address"
