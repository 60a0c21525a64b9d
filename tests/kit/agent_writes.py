"""What agents write of blocks and slices, as requests and documents, for their policy."""

import copy
import json
from ipaddress import ip_address

from kube_base.frozen import replace
from kube_client import wire
from kube_rdma.claims.rules.shape import slice_name
from kube_rdma.ipam.objects import block_labels, encode_block
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.ipam import (
    Bits,
    Block,
    BlockKey,
    Family,
    NetworkName,
    NodeHolding,
    NodeName,
    Owner,
    Pin,
)
from tests.kit import manifests

NETWORK = "rights"


def request(verb, kind, name="", body=None, *, part="", namespace=""):
    """What an agent writes, by the kind's plural."""
    group, version = {
        "pods": ("", "v1"),
        "bindings": ("", "v1"),
        "nodes": ("", "v1"),
        "leases": ("coordination.k8s.io", "v1"),
        "resourceslices": ("resource.k8s.io", "v1"),
        "resourceclaims": ("resource.k8s.io", "v1"),
    }.get(kind, ("kube-rdma.io", "v1alpha1"))
    written = wire.ApiRequest(verb, group, version, kind, namespace, name, part)
    types = {"patch": wire.STRATEGIC if part else wire.MERGE}
    return replace(
        written, body=json.dumps(body or {}).encode(), content_type=types.get(verb, wire.JSON)
    )


def block_at(first, **holdings):
    """A block with what nodes hold of it: places by the node's name, with _ for a dash."""
    address = ip_address(first)
    key = BlockKey(NetworkName(NETWORK), Family(address.version), int(address))
    held = [
        NodeHolding(NodeName(node.replace("_", "-")), Bits(sum(1 << place for place in places)))
        for node, places in sorted(holdings.items())
    ]
    return Block(key, tuple(each for each in held if each.bits))


def document_of(block):
    """A block as the API has it."""
    spec = json.loads(encode_block(block))
    document = manifests.manifest("kube-rdma.io/v1alpha1", "IPBlock", block.key.name, spec)
    document["metadata"]["labels"] = labels_of(spec)
    return document


def labels_of(spec):
    """The labels of a block, whatever is wrong with its addresses."""
    held = [NodeHolding(one["node"], Bits(1)) for one in spec.get("holdings", ())]
    pins = [Pin(Owner(one["owner"]), 0) for one in spec.get("pins", ())]
    return dict(block_labels(Block(block_at("10.0.0.0").key, tuple(held), tuple(pins))))


def changed(stored_block, **spec):
    """The block as an agent writes it next."""
    after = copy.deepcopy(stored_block)
    after["spec"] |= {"edition": after["spec"]["edition"] + 1, **spec}
    after["metadata"]["labels"] = labels_of(after["spec"])
    return after


def update(after, **metadata):
    document = {**after, "metadata": {**after["metadata"], **metadata}}
    return request("update", "ipblocks", after["metadata"]["name"], document)


def slice_of(node, name=None, **spec):
    """A slice as an agent makes it, without devices."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or slice_name(7, node)},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec},
    }
