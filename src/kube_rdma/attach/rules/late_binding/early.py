"""Shares whose device nodes a container gets at Allocate, although their devices move afterwards.

In RDMA namespace mode exclusive a pod's network moves the card's RDMA device into the pod, and the
move gives it device nodes anew, with the lowest numbers that are free (netlink/rdma_write.py). A
container that is bound late gets those; one that was bound early keeps what it has, and that may be
another pod's device by then. So it is compared, after the move and before the container starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kube_rdma.lib.phrases import listed
from kube_rdma.model.attach.attachment import NetworkSeat, Plan
from kube_rdma.model.attach.steps import MoveRdma
from kube_rdma.model.device import CharKind, Device
from kube_rdma.model.errors import Outdated
from kube_rdma.model.pools.pool import Attach, PoolSpec
from kube_rdma.model.survey import NamespaceMode
from kube_rdma.pools.rules.modes import terms


def renumbered(specs: Iterable[PoolSpec], mode: NamespaceMode) -> Iterator[str]:
    """A sentence about each pool whose containers may be given nodes that change afterwards."""
    for spec in specs:
        row = terms(spec)
        if mode is NamespaceMode.EXCLUSIVE and row.owns and row.attach is Attach.NONE:
            yield (
                f"{spec.resource} gives device nodes before its RDMA devices move into pods, which "
                "may renumber them: write attach: auto into its pool in a NodePolicy."
            )


def refuse_renumbered(
    plans: Sequence[Plan], placed: Sequence[NetworkSeat], devices: Sequence[Device]
) -> None:
    """Raise Outdated when a device that moved is not what its container was given.

    `devices` are as they are since the move.
    """
    for plan, seat in zip(plans, placed, strict=True):
        moved = any(isinstance(step, MoveRdma) for step in plan.steps)
        if seat.share is None or not (seat.share.early and moved):
            continue
        for device in (one for one in devices if one.name in seat.devices):
            paths = {one.path for one in device.char_devices if one.kind is CharKind.UVERBS}
            if not paths <= set(seat.share.char_paths):
                given = listed(_verbs(seat.share.char_paths))
                raise Outdated(
                    f"{device.name} is {listed(sorted(paths))} since it moved into the pod, and "
                    f"the container was given {given}, so only a new pod can use it"
                )


def _verbs(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.rpartition("/")[2].startswith("uverbs")] or ["none"]
