"""Settings of a container out of what it really got: NCCL and UCX use these devices, no others.

Late binding writes them when the pod's network is attached, for GID indexes are known only then;
the shim merges them with the container's own (shim/settings.c), which win. Variables that a program
has in its environment win over both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube_rdma.model.binding import UsedDevice

ANNOTATION = "kube-rdma.io/settings"  # of a pod; "none": it gets none
_HEAD = "# By kube-rdma, of the RDMA devices that this container was given.\n"


def wanted(annotations: Mapping[str, str]) -> bool:
    """Whether a pod with these annotations gets settings."""
    return annotations.get(ANNOTATION) != "none"


def settings_files(used: Sequence[UsedDevice]) -> dict[str, str]:
    """The files by name, none without devices.

    NCCL takes a name for the beginning of names, so it is told to take whole ones (``=``), of at
    most 32 devices (NCCL's user guide, NCCL_IB_HCA). Both know one GID index for all devices: where
    these differ, or one has none, it is left out and said.
    """
    if not used:
        return {}
    ports = ",".join(dict.fromkeys(f"{one.name}:{one.port}" for one in used))
    gid, why = _gid_index(used)
    nccl = [f"NCCL_IB_HCA=={ports}", *([f"NCCL_IB_GID_INDEX={gid}"] if gid is not None else [])]
    ucx = [f"UCX_NET_DEVICES={ports}", *([f"UCX_IB_GID_INDEX={gid}"] if gid is not None else [])]
    return {
        name: "".join((_HEAD, why, *(f"{line}\n" for line in lines)))
        for name, lines in (("nccl.conf", nccl), ("ucx.conf", ucx))
    }


def _gid_index(used: Sequence[UsedDevice]) -> tuple[int | None, str]:
    """The index that all devices of Ethernet have, or None, and why, as a line of comment.

    On InfiniBand programs need none.
    """
    ethernet = [one for one in used if not one.infiniband]
    indexes = {one.gid_index for one in ethernet}
    if len(indexes) == 1:
        return indexes.pop(), ""
    if not ethernet:
        return None, ""
    shown = ", ".join(
        f"{one.name} {'none' if one.gid_index is None else one.gid_index}" for one in ethernet
    )
    return None, f"# No GID index, for there is one for all devices, and theirs are: {shown}.\n"
