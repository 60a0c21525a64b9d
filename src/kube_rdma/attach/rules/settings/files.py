"""Settings of a container out of what it really got: NCCL, UCX and MPI use these devices alone.

Late binding writes them when the pod's network is attached, for GID indexes are known only then;
the shim merges them with the container's own (shim/settings.c), which win. Variables that a program
has in its environment win over both. What Allocate can tell of a pool is `pool_files`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kube_base.frozen import replace
from kube_rdma.model.late_binding.binding import UsedDevice
from kube_rdma.model.settings.fabric import FabricProfile

ANNOTATION = "kube-rdma.io/settings"  # of a pod
NONE, TOPOLOGY = "none", "topology"  # what it may say: no settings, or NCCL's topology file too
TOPOLOGY_FILE = "nccl-topology.xml"
_TOPOLOGY_PATH = f"/etc/kube-rdma/{TOPOLOGY_FILE}"  # in the container, as shim/settings.c has it
# Before 1.19 UCX takes the version of an address from a field that only NVIDIA's drivers fill, and
# drops all datagrams of others without a word (openucx/ucx#10209); so it finds no peer there.
_ANY_VENDOR = "UCX_UD_VERBS_ETH_DGID_CHECK=n"
# Open MPI takes UCX by itself for NVIDIA's cards alone (opal/mca/common/ucx, pml_ucx_devices).
_ANY_DEVICE = "pml_ucx_devices = any"
_TIMEOUT_US = 4.096  # of an acknowledgement, times 2^timeout (InfiniBand, Local ACK Timeout)
_HEAD = "# By kube-rdma, of the RDMA devices that this container was given.\n"
_LATER = "# No GID index: which one is the container's own is known in it alone. See nccl_env.sh.\n"
_OTHERS = (
    "# No device and no GID index: a container may hold devices of other resources besides. See "
    "nccl_env.sh.\n"
)


def as_asked(used: Sequence[UsedDevice], annotations: Mapping[str, str]) -> tuple[UsedDevice, ...]:
    """What a pod with these annotations is told of its devices: all, all but places, or nothing."""
    asked = annotations.get(ANNOTATION)
    if asked == NONE:
        return ()
    if asked == TOPOLOGY:
        return tuple(used)
    return tuple(replace(device, place=None) for device in used)


def settings_files(
    used: Sequence[UsedDevice], fabric: FabricProfile | None = None, topology: str = ""
) -> dict[str, str]:
    """The files by name, none without devices; `fabric` is what the pool says of its own.

    With a `topology` (attach/rules/settings/topology_file) NCCL is told of that file.
    """
    if not used:
        return {}
    nccl, ucx = _named(used)
    gid, why = _gid_index(used)
    if gid is not None:
        nccl.append(f"NCCL_IB_GID_INDEX={gid}")
        ucx.append(f"UCX_IB_GID_INDEX={gid}")
    if topology:
        nccl.append(f"NCCL_TOPO_FILE={_TOPOLOGY_PATH}")
    files = _files(nccl, [*ucx, *_vendors(used)], fabric, why)
    return {**files, TOPOLOGY_FILE: topology} if topology else files


def pool_files(
    used: Sequence[UsedDevice], fabric: FabricProfile | None, *, alone: bool
) -> dict[str, str]:
    """The same where nobody knows yet who holds the shares of these devices.

    Only where the resource is `alone` on its node are devices named: a container with shares of
    another one would be kept from those.
    """
    nccl, ucx = _named(used) if used and alone else ([], [])
    why = _gid_index(used)[1] if alone else _OTHERS
    return _files(nccl, [*ucx, *_vendors(used)], fabric, why)


def _named(used: Sequence[UsedDevice]) -> tuple[list[str], list[str]]:
    """The lines that name devices, for NCCL and for UCX.

    NCCL takes a name for the beginning of names, so it is told to take whole ones (``=``), of at
    most 32 devices (NCCL's user guide, NCCL_IB_HCA).
    """
    ports = ",".join(dict.fromkeys(f"{one.name}:{one.port}" for one in used))
    return [f"NCCL_IB_HCA=={ports}"], [f"UCX_NET_DEVICES={ports}"]


def _vendors(used: Sequence[UsedDevice]) -> Iterator[str]:
    if not all(one.infiniband for one in used):
        yield _ANY_VENDOR


def _files(
    nccl: Iterable[str], ucx: Iterable[str], fabric: FabricProfile | None, why: str
) -> dict[str, str]:
    if fabric is not None:
        nccl, ucx = (*nccl, *_nccl_fabric(fabric)), (*ucx, *_ucx_fabric(fabric))
    return {
        "nccl.conf": "".join((_HEAD, why, *(f"{line}\n" for line in nccl))),
        "ucx.conf": "".join((_HEAD, why, *(f"{line}\n" for line in ucx))),
        "openmpi-mca-params.conf": f"{_HEAD}{_ANY_DEVICE}\n",
    }


def _nccl_fabric(fabric: FabricProfile) -> Iterator[str]:
    """Parameters of NCCL's queue pairs (src/transport/net_ib, NCCL_PARAM)."""
    for name, value in (
        ("NCCL_IB_TC", fabric.traffic_class),
        ("NCCL_IB_SL", fabric.service_level),
        ("NCCL_IB_TIMEOUT", fabric.timeout),
        ("NCCL_IB_RETRY_CNT", fabric.retry_count),
        ("NCCL_IB_QPS_PER_CONNECTION", fabric.qps_per_connection),
    ):
        if value is not None:
            yield f"{name}={value}"
    yield from (f"{name}={value}" for name, value in fabric.variables if name.startswith("NCCL_"))


def _ucx_fabric(fabric: FabricProfile) -> Iterator[str]:
    """The same of UCX, for all of its transports (UCX_IB_) and the connected ones (UCX_RC_).

    It takes a time, and rounds it to an exponent itself (uct_ib_to_qp_fabric_time).
    """
    timeout = None if fabric.timeout is None else f"{_TIMEOUT_US * 2**fabric.timeout:.3f}us"
    for name, value in (
        ("UCX_IB_TRAFFIC_CLASS", fabric.traffic_class),
        ("UCX_IB_SL", fabric.service_level),
        ("UCX_RC_TIMEOUT", timeout),
        ("UCX_RC_RETRY_COUNT", fabric.retry_count),
    ):
        if value is not None:
            yield f"{name}={value}"
    yield from (f"{name}={value}" for name, value in fabric.variables if name.startswith("UCX_"))


def _gid_index(used: Sequence[UsedDevice]) -> tuple[int | None, str]:
    """The index that all devices of Ethernet have, or None, and why, as a line of comment.

    NCCL and UCX know one for all devices: where these differ, or one has none, it is left out and
    said. On InfiniBand programs need none.
    """
    ethernet = [one for one in used if not one.infiniband]
    if any(not one.interface for one in ethernet):
        return None, _LATER
    indexes = {one.gid_index for one in ethernet}
    if len(indexes) == 1:
        return indexes.pop(), ""
    if not ethernet:
        return None, ""
    shown = ", ".join(
        f"{one.name} {'none' if one.gid_index is None else one.gid_index}" for one in ethernet
    )
    return None, f"# No GID index, for there is one for all devices, and theirs are: {shown}.\n"
