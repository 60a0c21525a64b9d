"""Asks the container runtime about itself, CDI, its CNI folders, sandboxes and containers.

It makes five calls of the CRI v1, none of which changes anything. attach/rules/late_binding decides
whether CDI devices reach a container, attach/rules/repair which sandbox lacks its network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kube_base.errors import Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_rdma.adapters.grpc_calls import CallFailed, answered, calling
from kube_rdma.adapters.runtime.proto import cri_v1_pb2 as pb
from kube_rdma.adapters.runtime.proto.cri_v1_grpc import RuntimeServiceStub
from kube_rdma.model.late_binding import ContainerId, MadeContainer, PodName, PodSandbox, Runtime

_SECONDS = 10.0
_BINDS = ("bind", "rbind", "")  # types of mounts that show a part of the host

SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/k3s/containerd/containerd.sock"),  # of RKE2 too
    Path("/run/crio/crio.sock"),
    Path("/run/k0s/containerd.sock"),
    Path("/var/snap/microk8s/common/run/containerd.sock"),
)


def find_socket(candidates: Sequence[Path] = SOCKETS) -> Path:
    """Return the first socket that exists, else the first path, for error messages."""
    return next((path for path in candidates if path.is_socket()), candidates[0])


async def read_runtime(socket: Path) -> Runtime:
    """Return the name, version and settings of the runtime on this socket.

    containerd prints its CRI configuration (internal/cri/server/status.go), with its CNI folders
    and, before 2.4, enableCDI. CRI-O prints none of it. Raise Unavailable without an answer.
    """
    with _asking(socket) as stub:
        version = await answered(stub.Version(pb.VersionRequest(), timeout=_SECONDS))
        status = await answered(stub.Status(pb.StatusRequest(verbose=True), timeout=_SECONDS))
    return runtime(version.runtime_name, version.runtime_version, status.info)


def runtime(name: str, version: str, info: Mapping[str, str]) -> Runtime:
    """Return a Runtime with the settings in `info`, its verbose answer to Status."""
    config, cni = _document(info, "config"), _document(info, "cniconfig")  # go-cni ConfigResult
    enabled = config.get("enableCDI")
    folder, binaries = cni.get("PluginConfDir"), _texts(cni.get("PluginDirs"))
    has_cni = isinstance(folder, str) and folder and binaries
    return Runtime(
        name,
        version,
        enabled if isinstance(enabled, bool) else None,
        *((folder, binaries) if has_cni else ("", ())),
    )


async def read_sandboxes(socket: Path) -> tuple[PodSandbox, ...]:
    """Return all sandboxes of the runtime; raise Unavailable without an answer.

    containerd lists a sandbox only after its CNI ADD was answered
    (internal/cri/server/sandbox_run.go).
    """
    with _asking(socket) as stub:
        answer = await answered(stub.ListPodSandbox(pb.ListPodSandboxRequest(), timeout=_SECONDS))
    return tuple(
        PodSandbox(
            container=ContainerId(one.id),
            pod=PodName(one.metadata.namespace, one.metadata.name),
            uid=one.metadata.uid,
            ready=one.state == pb.SANDBOX_READY,
            created=one.created_at,
        )
        for one in answer.items
    )


async def read_netns(socket: Path, container: ContainerId) -> str:
    """Return the path of a sandbox's network namespace, "" for one on the host's network.

    Raise Unavailable when the sandbox is gone or the runtime does not say. Both containerd and
    CRI-O print the OCI spec that the sandbox was made with, and in it the namespace's path.
    """
    with _asking(socket) as stub:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=container, verbose=True)
        answer = await answered(stub.PodSandboxStatus(request, timeout=_SECONDS))
    path = netns(answer.info)
    if path is None:
        raise _unavailable(socket, f"it does not show the namespaces of sandbox {container}")
    return path


async def read_container(socket: Path, container: ContainerId) -> MadeContainer:
    """Return variables, device files and mounts of a container.

    Both containerd and CRI-O print the OCI spec of a container, after CDI has changed it. Raise
    Unavailable when the container is gone or the runtime does not say.
    """
    with _asking(socket) as stub:
        request = pb.ContainerStatusRequest(container_id=container, verbose=True)
        answer = await answered(stub.ContainerStatus(request, timeout=_SECONDS))
    made = made_container(answer.info)
    if made is None:
        raise _unavailable(socket, f"it does not show the spec of container {container}")
    return made


def made_container(info: Mapping[str, str]) -> MadeContainer | None:
    """Return variables, device files and mounts in `info` of a container.

    Return None if it shows no process.
    """
    spec = _part(_document(info, "info"), "runtimeSpec")
    process = _part(spec, "process")
    if not process:
        return None
    pairs = (text.partition("=") for text in _texts(process.get("env")))
    mounts = _rows(spec.get("mounts"), "destination", "source", "type")
    return MadeContainer(
        tuple((name, value) for name, equals, value in pairs if equals),
        tuple(path for (path,) in _rows(_part(spec, "linux").get("devices"), "path")),
        tuple((inside, source) for inside, source, kind in mounts if kind in _BINDS),
    )


def netns(info: Mapping[str, str]) -> str | None:
    """Return the network namespace's path in `info` of a sandbox: "" for the host's network.

    Return None if it shows no namespaces.
    """
    spec = _part(_document(info, "info"), "runtimeSpec")
    spaces = _part(spec, "linux").get("namespaces")
    if not isinstance(spaces, list):
        return None
    for space in spaces:
        if isinstance(space, dict) and space.get("type") == "network":
            return str(space.get("path") or "")
    return ""


@contextmanager
def _asking(socket: Path) -> Iterator[RuntimeServiceStub]:
    """Yield a client of the runtime's CRI service; raise Unavailable when a call fails."""
    try:
        with calling(socket) as channel:
            yield RuntimeServiceStub(channel)
    except CallFailed as failure:
        raise _unavailable(socket, failure.reason) from failure


def _unavailable(socket: Path, reason: str) -> Unavailable:
    return Unavailable(
        f"The container runtime does not answer on {socket} ({reason}); see that it runs and that "
        "the host's folder of this socket is mounted (hostPath)."
    )


def _document(info: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return the JSON object under a key of the runtime's verbose info; {} without one."""
    try:
        document = decoded(info.get(key, ""))
    except Undecodable:
        return {}
    return document if isinstance(document, dict) else {}


def _part(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = document.get(key)
    return part if isinstance(part, dict) else {}


def _rows(entries: object, *keys: str) -> Iterator[tuple[str, ...]]:
    """Yield these fields of each entry as texts; "" for a field that is missing."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield tuple(str(entry.get(key) or "") for key in keys)


def _texts(entries: object) -> tuple[str, ...]:
    if not isinstance(entries, list):
        return ()
    return tuple(entry for entry in entries if isinstance(entry, str))
