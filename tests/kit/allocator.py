"""The allocator of Kubernetes itself, asked about worlds of tests/kit/claim_worlds.

A Go program of ours around k8s.io/dynamic-resource-allocation (tests/lab/native/allocator),
built as the lab builds Kubernetes.
"""

import contextlib
import json
import subprocess
from pathlib import Path

from kube_client.wire import stored
from kube_rdma.adapters.cluster.kinds.resource_api import (
    BETA_TAINT_RULE,
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    device_class,
    resource_claim,
    resource_slice,
)
from kube_rdma.claims.rules.pools import ruled
from kube_rdma.model.claims.claim import ClaimNode, ClaimWorld
from kube_rdma.model.kubernetes import quantity
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store

MODULES = Path(__file__).parents[1] / "lab/native"


def build(store):
    """The program."""
    return go.build_module(store, "allocator", MODULES) / "allocator"


@contextlib.contextmanager
def built():
    """The same, safe from pruning meanwhile."""
    with open_store() as store:
        yield build(store)


def asked(program, worlds):
    """What it says of each world: verdicts by node."""
    text = "\n".join(map(json.dumps, worlds))
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def read(world):
    """A world as the model has it, read as from the API server; its rules are of the beta."""
    slices = [resource_slice(_stored(RESOURCE_SLICE, one)) for one in world["slices"]]
    rules = (_stored(BETA_TAINT_RULE, one) for one in world.get("rules", ()))
    return ClaimWorld(
        claim=resource_claim(_stored(RESOURCE_CLAIM, world["claim"])),
        nodes=tuple(
            ClaimNode(one["metadata"]["name"], one["metadata"]["labels"]) for one in world["nodes"]
        ),
        classes=tuple(device_class(_stored(DEVICE_CLASS, one)) for one in world["classes"]),
        slices=ruled(slices, {one.name: one.spec for one in rules}),
        others=tuple(resource_claim(_stored(RESOURCE_CLAIM, one)) for one in world["claims"]),
    )


def told(verdict):
    """What the allocator says of a node: refused for all nodes, not met, or the devices."""
    if verdict.get("aborted"):
        return "refused"
    devices = [_device(one) for one in verdict.get("results", ())]
    return devices or "notMet"


def ours(verdict):
    """The same of a ClaimVerdict."""
    if not verdict.granted:
        return str(verdict.outcome)
    return [
        ((one.request, one.driver, one.pool, one.device), bool(one.admin), dict(one.capacity))
        for one in verdict.granted
    ]


def _device(result):
    names = (result["request"], result["driver"], result["pool"], result["device"])
    amounts = result.get("consumedCapacity") or {}
    capacity = {name: quantity(amount) for name, amount in amounts.items()}
    return names, bool(result.get("adminAccess")), capacity


def _stored(kind, document):
    return stored(kind, json.dumps(document).encode())
