"""The scheduler's own allocator, asked for one claim after the other until the node is full.

Second step of a measurement, around kube_rdma_tools/allocator. It is no scheduler of a cluster:
claims come one at a time, and each is asked with what the earlier ones hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kube_rdma.claims.templates import ClaimOptions, claim_objects
from kube_rdma_lab.build.go import build_module
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import cache_root
from kube_rdma_tools.allocator import Allocator, Result, running
from kube_rdma_tools.boards.board import NODE
from kube_rdma_tools.boards.classes import device_classes

MODULES = Path("tests/lab/native")


class BoardAllocator:
    """The scheduler's allocator, with the DeviceClasses that templates name."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._classes = device_classes()

    def fill(self, slices: str, options: ClaimOptions, most: int) -> Sequence[Sequence[Result]]:
        """Return the devices of each pod of a template on an empty node.

        It ends before the first pod that gets nothing, or after `most` pods.
        """
        claim = _claim(options)
        held: list[dict[str, Any]] = []
        pods: list[list[Result]] = []
        while len(pods) < most:
            results = self._allocate(slices, claim, held)
            if not results:
                break
            pods.append(results)
            status = {"allocation": {"devices": {"results": results}}}
            held.append({"metadata": {"name": f"pod-{len(pods)}"}, "status": status})
        return pods

    def _allocate(
        self, slices: str, claim: Mapping[str, Any], held: Sequence[Mapping[str, Any]]
    ) -> list[Result]:
        world = {
            "quiet": True,
            "nodes": [{"metadata": {"name": NODE}}],
            "classes": self._classes,
            "claim": claim,
            "claims": held,
        }
        head = json.dumps(world).removesuffix("}")
        return self._allocator.results(f'{head}, "slices": {slices}}}\n', NODE)


@contextmanager
def allocator(root: Path) -> Iterator[BoardAllocator]:
    """Build the allocator's program from the checkout at `root`, and yield it running."""
    # A store of its own, so that the lab's store counts and prunes no parts of this one.
    with Store(cache_root() / "bench") as store:
        program = build_module(store, "allocator", root / MODULES) / "allocator"
        with running(program) as process:
            yield BoardAllocator(process)


def _claim(options: ClaimOptions) -> dict[str, Any]:
    """Return the claim that Kubernetes makes of the template, with the API server's defaults."""
    template, _ = claim_objects(options)
    devices = dict(template["spec"]["spec"]["devices"])
    devices["requests"] = [_defaulted(request) for request in devices["requests"]]
    return {
        "metadata": {"name": "wanted", "namespace": "default", "uid": "wanted"},
        "spec": {"devices": devices},
    }


def _defaulted(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a device request with the API server's defaults (pkg/apis/resource/v1/defaults.go)."""
    if "exactly" in request:
        return {**request, "exactly": _counted(request["exactly"])}
    return {**request, "firstAvailable": list(map(_counted, request["firstAvailable"]))}


def _counted(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"allocationMode": "ExactCount", "count": 1, **fields}


def of_driver(results: Iterable[Result], driver: str) -> list[tuple[str, str]]:
    """Return driver and device of each result of this driver."""
    return [(one["driver"], one["device"]) for one in results if one["driver"] == driver]
