"""Reads a pod's containers: by the node's /proc, else as the runtime made them.

doctor/pod and explain/evidence call it. An agent's container has the node's /proc as a folder. In
it everybody may read the limits and rights of a process. Variables and device files take the rights
of ptrace, which an agent does not have; the runtime has those that the container was made with.
Nothing is started in the pod.
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

DEVICES = "/dev/infiniband"
PROC, _DEV = Path("/proc"), Path("/dev")
_STEERING = re.compile(r"(NCCL|UCX|NVSHMEM|FI|OMPI_MCA)_[A-Z0-9_a-z]+|PCIDEVICE_[A-Z0-9_]+")
_SECRET = re.compile(r"SECRET|TOKEN|PASS|KEY|CRED|AUTH", re.IGNORECASE)


def processes_folder(host: Path) -> Path:
    """Return the /proc with the processes of the node whose root is `host`.

    Where it is not mounted below `host`, return this process's own /proc.
    """
    mounted = host / "proc"
    return mounted if (mounted / "1").is_dir() else PROC


def uid_of(whole: FullPod) -> str:
    """Return the uid by which the kubelet and the runtime know the pod."""
    return whole.annotation(MIRROR) or whole.uid


def with_containers(
    seen: ObservedPod, whole: FullPod, folder: Path = PROC
) -> tuple[ObservedPod, Path]:
    """Add what the processes of each container show; return also the pod's network namespace.

    `folder` is the /proc with the node's processes. Raise Unavailable where it has no process of
    the pod, or a process has ended.
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
    """Add environment variables and device files from the container runtime where none were seen.

    They are what the container was made with. Raise Unavailable where the runtime cannot tell them.
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
    """Add the environment variables and device files that containers were made with.

    `made` is by container name. What was seen in a running container is kept. `dev` is the host's
    /dev.
    """
    full = {one.name: one for one in containers}
    for name, spec in made.items():
        nodes, variables = full[name].nodes, full[name].variables
        full[name] = replace(
            full[name],
            nodes=_made_nodes(spec, dev) if nodes is None else nodes,
            variables=steering(spec.variables) if variables is None else variables,
        )
    return tuple(full.values())


async def namespace_by_runtime(whole: FullPod, socket: Path) -> Path:
    """Return the path of the pod's network namespace, as the runtime names it.

    Raise Unavailable where the runtime does not answer, or has no namespace of the pod.
    """
    uid = uid_of(whole)
    for sandbox in await read_sandboxes(socket):
        if sandbox.ready and sandbox.uid == uid:
            path = await read_netns(socket, sandbox.container)
            if path:
                return Path(path)
    raise Unavailable("the runtime has no network namespace of the pod")


def is_open(namespace: Path) -> bool:
    """Return whether this process may open a namespace file."""
    try:
        os.close(os.open(namespace, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def container_ids(whole: FullPod) -> dict[str, str]:
    """Return the runtime's container ids of a pod's main containers, by their names."""
    parts = ((one.name, one.container_id) for one in status_of(whole).container_statuses)
    return {name: text.rpartition("//")[2] for name, text in parts if "//" in text}


def _with_process(
    container: ObservedContainer, pids: Sequence[int], folder: Path
) -> ObservedContainer:
    pid = pids[0]
    user, locks = proc.user_and_lock(pid, folder)
    amounts = []
    for one in pids:
        with suppress(Unavailable):  # it has ended
            amounts.append(proc.pinned(one, folder))
    variables = None
    with suppress(KubeError):
        variables = steering(proc.variables(pid, folder))
    return replace(
        container,
        pinned=sum(amounts) if amounts else None,
        user=user,
        locks=locks,
        memlock=proc.memlock(pid, folder),
        nodes=_nodes(folder / f"{pid}/root{DEVICES}"),
        variables=variables,
    )


def _nodes(folder: Path) -> tuple[str, ...] | None:
    """Return the paths of the device files in a folder; None where reading the folder is refused.

    Return () where there is no such folder.
    """
    try:
        return tuple(sorted(f"{DEVICES}/{path.name}" for path in folder.iterdir()))
    except FileNotFoundError:
        return ()
    except OSError:
        return None


def _made_nodes(made: MadeContainer, dev: Path) -> tuple[str, ...] | None:
    """Return the device files that a container was made with, sorted, by its OCI spec.

    Return None where a volume that is not the host's /dev hides them, or where the host's own may
    not be read.
    """
    paths = {path for path in made.nodes if path.startswith(f"{DEVICES}/")}
    for at, source in made.mounts:
        if at in (str(_DEV), DEVICES):
            below = Path(source) / Path(DEVICES).relative_to(at)
            if not below.is_relative_to(_DEV):
                return None
            shown = _nodes(dev / below.relative_to(_DEV))
            if shown is None:
                return None
            paths = set(shown)
        elif at.startswith(f"{DEVICES}/"):
            paths.add(at)
    return tuple(sorted(paths))


def steering(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return variables that steer RDMA programs and are not named like secrets, sorted by name."""
    kept = ((n, v) for n, v in pairs if _STEERING.fullmatch(n) and not _SECRET.search(n))
    return tuple(sorted(kept))
