"""What a doctor sees of a pod's containers: by the node's /proc, else by what the runtime made.

Beside doctor/pod. An agent's container has the node's /proc as a folder. In it everybody
may read the limits and rights of a process. Variables and device files take the rights of ptrace,
which an agent does not have; the runtime tells those that the container was made with. Nothing is
started in the pod.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kube_base.errors import KubeError, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.cluster.kinds.pod import FullPod, status_of
from kube_rdma.adapters.kernel import proc
from kube_rdma.adapters.runtime.cri import read_container, read_netns, read_sandboxes
from kube_rdma.model.doctor import ObservedContainer, ObservedPod
from kube_rdma.model.kubernetes import MIRROR
from kube_rdma.model.late_binding import ContainerId, MadeContainer

DOORS = "/dev/infiniband"
PROC, _DEV = Path("/proc"), Path("/dev")


def processes_folder(host: Path) -> Path:
    """The /proc that shows all processes of the node whose root is `host`, as far as there is one.

    Where the node's is not mounted it is that of this process.
    """
    mounted = host / "proc"
    return mounted if (mounted / "1").is_dir() else PROC


def uid_of(whole: FullPod) -> str:
    """The uid that the kubelet and the runtime know the pod by."""
    return whole.annotation(MIRROR) or whole.uid


def with_containers(
    seen: ObservedPod, whole: FullPod, folder: Path = PROC
) -> tuple[ObservedPod, Path]:
    """The same with what the first process of each container shows, and its network namespace.

    `folder` is the /proc to look in. Raise Unavailable where no process of the pod is to be seen.
    """
    pids = proc.processes_of(uid_of(whole), folder)
    if not pids:
        raise Unavailable(
            "no process of the pod is to be seen: run the doctor as root on the pod's node, "
            "outside of a container or with hostPID"
        )
    names = {container: name for name, container in container_ids(whole).items()}
    by_name = {names[one]: of for one, of in pids.items() if one in names}
    containers = tuple(
        _with_process(one, by_name[one.name], folder) if one.name in by_name else one
        for one in seen.containers or ()
    )
    namespace = folder / f"{next(iter(pids.values()))[0]}/ns/net"
    return replace(seen, containers=containers), namespace


async def with_specs(seen: ObservedPod, whole: FullPod, socket: Path, host: Path) -> ObservedPod:
    """The same with variables and device files as made, where none were seen in a container.

    Raise Unavailable where the runtime does not say.
    """
    ids = container_ids(whole)
    made = {
        one.name: await read_container(socket, ContainerId(ids[one.name]))
        for one in seen.containers or ()
        if one.name in ids and None in (one.variables, one.nodes)
    }
    return replace(seen, containers=with_made(seen.containers or (), made, host / "dev"))


def with_made(
    containers: Sequence[ObservedContainer], made: Mapping[str, MadeContainer], dev: Path
) -> tuple[ObservedContainer, ...]:
    """The containers with what they were made with; `dev` is where the host's /dev is."""
    return tuple(
        _with_made(one, made[one.name], dev) if one.name in made else one for one in containers
    )


async def namespace_by_runtime(whole: FullPod, socket: Path) -> Path:
    """The pod's network namespace by the word of the runtime; raise Unavailable."""
    uid = uid_of(whole)
    for sandbox in await read_sandboxes(socket):
        if sandbox.ready and sandbox.uid == uid:
            path = await read_netns(socket, sandbox.container)
            if path:
                return Path(path)
    raise Unavailable("the runtime has no network namespace of the pod")


def is_open(namespace: Path) -> bool:
    """Whether this process may open a namespace: of another's process that takes ptrace."""
    try:
        os.close(os.open(namespace, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def container_ids(whole: FullPod) -> dict[str, str]:
    """The runtime's ids of the containers that it has, by their names in the pod."""
    parts = ((one.name, one.container_id) for one in status_of(whole).container_statuses)
    return {name: text.rpartition("//")[2] for name, text in parts if "//" in text}


def _with_process(
    container: ObservedContainer, pids: Sequence[int], folder: Path
) -> ObservedContainer:
    pid = pids[0]
    user, locks = proc.user_and_lock(pid, folder)
    return replace(
        container,
        pinned=_pinned(pids, folder),
        user=user,
        locks=locks,
        memlock=proc.memlock(pid, folder),
        nodes=_nodes(folder / f"{pid}/root{DOORS}"),
        variables=_variables(pid, folder),
    )


def _nodes(folder: Path) -> tuple[str, ...] | None:
    """The files of a folder of devices; None where it may not be read."""
    try:
        return tuple(sorted(f"{DOORS}/{path.name}" for path in folder.iterdir()))
    except FileNotFoundError:
        return ()
    except OSError:
        return None


def _pinned(pids: Sequence[int], folder: Path) -> int | None:
    """What all of them have pinned; None where none of them tells."""
    amounts = []
    for pid in pids:
        with suppress(Unavailable):  # it has ended
            amounts.append(proc.pinned(pid, folder))
    return sum(amounts) if amounts else None


def _variables(pid: int, folder: Path) -> tuple[tuple[str, str], ...] | None:
    try:
        return steering(proc.variables(pid, folder))
    except KubeError:
        return None


def _with_made(container: ObservedContainer, made: MadeContainer, dev: Path) -> ObservedContainer:
    """What was seen in the container itself counts more than what it was made with."""
    nodes, variables = container.nodes, container.variables
    return replace(
        container,
        nodes=_made_nodes(made, dev) if nodes is None else nodes,
        variables=steering(made.variables) if variables is None else variables,
    )


def _made_nodes(made: MadeContainer, dev: Path) -> tuple[str, ...] | None:
    """Device files by the OCI spec; None where a volume lies over them that is not the host's /dev.

    runc makes the devices of the spec, then mounts what lies deeper; over a bind mount at /dev it
    makes none (libcontainer/rootfs_linux.go, needsSetupDev).
    """
    paths = {path for path in made.nodes if path.startswith(f"{DOORS}/")}
    for at, source in made.mounts:
        if at in (str(_DEV), DOORS):
            below = Path(source) / Path(DOORS).relative_to(at)
            if not below.is_relative_to(_DEV):
                return None
            shown = _nodes(dev / below.relative_to(_DEV))
            if shown is None:
                return None
            paths = set(shown)
        elif at.startswith(f"{DOORS}/"):
            paths.add(at)
    return tuple(sorted(paths))


_STEERING = re.compile(r"(NCCL|UCX|NVSHMEM|FI|OMPI_MCA)_[A-Z0-9_a-z]+|PCIDEVICE_[A-Z0-9_]+")
_SECRET = re.compile(r"SECRET|TOKEN|PASS|KEY|CRED|AUTH", re.IGNORECASE)


def steering(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the variables that a bundle may hold: they steer RDMA and are nobody's secret."""
    kept = ((n, v) for n, v in pairs if _STEERING.fullmatch(n) and not _SECRET.search(n))
    return tuple(sorted(kept))
