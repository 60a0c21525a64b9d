"""Finds the folders of this node's kubelet, and reads what it keeps in them.

``--root-dir`` moves pod-resources and plugins_registry, but not device-plugins: that path is a
constant (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go), which some distributions
change. So device-plugins is looked for by itself, and a root with a kubelet's socket goes before
one with the folder alone.
"""

from __future__ import annotations

import re
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kube_base.errors import Refused, Unavailable
from kube_base.foreign_json import Undecodable, decoded
from kube_base.frozen import Frozen, field
from kube_base.os_files import readable
from kube_rdma.adapters import inotify
from kube_rdma.model.holdings import RecordedGrant
from kube_rdma.model.pools import ShareId

# Sockets: how to tell one from another, and a watch of a folder of them.

KUBELET_SOCKET = "kubelet.sock"

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Return inode and change time of a socket, which tell it from a later one; None without one.

    Inode numbers are used again at once on some file systems, so the time of change goes with it.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_ctime_ns) if stat.S_ISSOCK(status.st_mode) else None


@contextmanager
def watching(directory: Path, names: Collection[str]) -> Iterator[AsyncIterator[None]]:
    """Yield an iterator that yields when one of the files `names` came to `directory` or went.

    It sees every change since the context was entered, and yields also when events were lost. Raise
    Refused when the directory cannot be watched, Unavailable when no inotify instance is left. The
    iterator raises Unavailable when the directory is removed or moved away.
    """

    def refused(error: OSError) -> Refused:
        problem = f"the kubelet's folder cannot be watched ({error.strerror})"
        mount = f"Mount the host's /var/lib/kubelet/{directory.name} there (hostPath)"
        remedy = f"{mount} and run as uid 0, or name the folder with --kubelet-root"
        return Refused(problem, remedy=remedy, where=str(directory))

    async def among(changed: AsyncIterator[str | None]) -> AsyncIterator[None]:
        async for name in changed:
            if name is None or name in names:
                yield

    with inotify.watching(directory, refused) as changed:
        yield among(changed)


# The folders.

FIXED = Path("/var/lib/kubelet")  # device-plugins is in there, whatever the root is

KNOWN = (
    FIXED,
    Path("/var/lib/k0s/kubelet"),  # k0s: <data-dir>/kubelet
    Path("/var/snap/microk8s/common/var/lib/kubelet"),  # MicroK8s, a snap
    Path("/var/lib/rancher/k3s/agent/kubelet"),  # K3s of 2020 and older
    Path("/data/kubelet"),  # where people put it who keep a small root disk
)

DEVICE_PLUGINS = "device-plugins"
PLUGINS_REGISTRY = "plugins_registry"
POD_RESOURCES = "pod-resources"


class Folders(Frozen):
    """The kubelet's folders as this process sees them; None for one that is not mounted."""

    device_plugins: Path
    plugins_registry: Path | None
    pod_resources: Path | None  # the socket


def find_folders(roots: Sequence[Path] = KNOWN, host: Path = Path("/")) -> Folders:
    """Return the kubelet's folders; a root with a kubelet's socket goes before the others.

    The root of device-plugins may differ from that of the other folders. FIXED is always tried.
    `host` is where the host's root is mounted. Raise Refused when there is no device-plugins.
    """
    # Joined as text: a path that begins with / would replace `host`.
    places = [host / str(root).lstrip("/") for root in dict.fromkeys((*roots, FIXED))]

    def first(*tests: Callable[[Path], bool]) -> Path | None:
        return next((place for test in tests for place in places if test(place)), None)

    plugins = first(
        lambda p: _answers(p / DEVICE_PLUGINS), lambda p: _is_folder(p / DEVICE_PLUGINS)
    )
    if plugins is None:
        problem = f"there is no {DEVICE_PLUGINS} below {', '.join(map(str, places))}"
        mount = "Mount the host's /var/lib/kubelet/device-plugins there (hostPath)"
        raise Refused(problem, remedy=f"{mount}, or name the folder with --kubelet-root")
    root = first(lambda p: _answers(p / POD_RESOURCES), lambda p: _is_folder(p / PLUGINS_REGISTRY))
    if root is None:
        return Folders(plugins / DEVICE_PLUGINS, None, None)
    return Folders(
        plugins / DEVICE_PLUGINS,
        root / PLUGINS_REGISTRY if _is_folder(root / PLUGINS_REGISTRY) else None,
        root / POD_RESOURCES / KUBELET_SOCKET if _is_folder(root / POD_RESOURCES) else None,
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False  # behind a folder that may not be entered


def _answers(folder: Path) -> bool:
    """Decide whether the folder has a kubelet's socket."""
    return identity(folder / KUBELET_SOCKET) is not None


# The checkpoint: what the kubelet itself wrote down of the shares that it gave away.

NAME = "kubelet_internal_checkpoint"


class _CheckpointEntry(Frozen, rename="pascal"):
    """A PodDevicesEntry; `device_ids` by NUMA node, -1 for none."""

    pod_uid: str = field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, tuple[str, ...] | None] | None = field(name="DeviceIDs", default=None)

    @property
    def shares(self) -> tuple[ShareId, ...]:
        names = {name for ids in (self.device_ids or {}).values() for name in ids or ()}
        return tuple(map(ShareId, sorted(names)))


class _CheckpointData(Frozen, rename="pascal"):
    pod_device_entries: tuple[_CheckpointEntry, ...] | None = None


class _Checkpoint(Frozen, rename="pascal"):
    data: _CheckpointData


class DeviceCheckpoint:
    """A reader of the kubelet's checkpoint of device allocations."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self) -> tuple[RecordedGrant, ...]:
        """Return the allocations in the checkpoint; none if no kubelet has written it yet.

        It blocks. Raise Unavailable where the record cannot be read.
        """
        try:
            entries = decoded(self._path.read_bytes(), _Checkpoint).data.pod_device_entries or ()
        except FileNotFoundError:
            return ()
        except (OSError, Undecodable) as error:
            why = error.why if isinstance(error, Undecodable) else error.strerror
            raise Unavailable(
                f"The kubelet's record {self._path} of the shares that pods hold cannot be read "
                f"({why}); until it can, a kubelet that has just started is taken at its word."
            ) from error
        return tuple(
            RecordedGrant(entry.pod_uid, entry.container_name, entry.resource_name, entry.shares)
            for entry in entries
        )


# Facts for the doctor: the kubelet's topology policy, and the sockets of plugins.

_POLICY = re.compile(r"^topologyManagerPolicy:\s*[\"']?([a-z-]+)", re.MULTILINE)
_DEFAULT = "none"
_LONGEST = 1 << 20


def topology_policy(roots: tuple[Path, ...]) -> str:
    """Return the topology manager policy in the kubelet's config.yaml; "" without the file.

    The policy is "none", the kubelet's default, where the file does not say.
    """
    for root in roots:
        try:
            with (root / "config.yaml").open("rb") as file:
                text = file.read(_LONGEST).decode(errors="replace")
        except OSError:
            continue
        match = _POLICY.search(text)
        return match[1] if match else _DEFAULT
    return ""


def sockets(folder: Path) -> tuple[str, ...]:
    """Return the names of sockets in the folder device-plugins.

    Raise Unavailable when the folder cannot be read.
    """
    with readable(folder):
        return tuple(sorted(path.name for path in folder.iterdir() if path.is_socket()))
