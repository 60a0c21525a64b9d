"""Finds the folders in which a node's container runtime looks for CNI, by its own configuration.

Distributions differ, and change between releases, so the configuration of their containerd or CRI-O
counts. Only where no such file names a folder that exists, usual folders are tried. The agent asks
the running runtime first (attach/node_networks), which knows without any file being mounted. The
host's root is seen under a prefix, so links are followed inside of it.
"""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_base.os_files import needed, replace
from kube_rdma.model.attach.cni import HOOK_PROGRAM, IPAM_PLUGIN, PLUGIN

NAMES = (PLUGIN, IPAM_PLUGIN, HOOK_PROGRAM)
SHIMS = Path(__file__).with_name("shim")  # filled when the package is built (hatch_build.py)

_REVISION = re.compile(r"^(/var/snap/[^/]+)/x?\d+/")
_LINKS = 40  # as many as the kernel follows


class CniPlaces(Frozen):
    """The runtime's folders of CNI configurations and binaries, as the host names them."""

    conf: PurePosixPath
    binaries: PurePosixPath  # in which the runtime looks first
    source: str  # of this knowledge, for messages
    more: tuple[PurePosixPath, ...] = ()  # further folders of binaries, in this order


_CONF, _BINARIES = "/etc/cni/net.d", "/opt/cni/bin"  # the defaults of runtimes

# The special ones first: a node of k3s may have a containerd of its own besides.
_CONFIGS = (
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/etc/crio/crio.conf.d",
    "/etc/crio/crio.conf",
    "/etc/containerd/config.toml",
)

# Pairs that distributions use, for a host whose runtime has no file: conf, binaries.
_USUAL_FOLDERS = (
    ("/etc/kubernetes/cni/net.d", "/var/lib/cni/bin"),  # OpenShift
    (_CONF, "/home/kubernetes/bin"),  # GKE
    (_CONF, _BINARIES),
)


def places(conf: str, binaries: Sequence[str], source: str) -> CniPlaces:
    """Return CNI folders; in paths of a snap the revision becomes `current`."""
    first, *more = (PurePosixPath(_unrevised(path)) for path in binaries)
    return CniPlaces(PurePosixPath(_unrevised(conf)), first, source, tuple(more))


def _unrevised(path: str) -> str:
    """Return the path with the link `current` in place of a snap's revision.

    MicroK8s puts the revision into its containerd.toml, and a pod mounts `current`.
    """
    return _REVISION.sub(r"\1/current/", path)


def find(host: Path = Path("/")) -> CniPlaces:
    """Return this host's CNI folders, guessed by existing files; raise Refused if that fails.

    A runtime counts only if the folder of CNI configuration that it names exists. Files that a
    former runtime left behind usually name folders that are gone.
    """
    for candidate in _candidates(host):
        if inside(host, candidate.conf).is_dir():
            return candidate
    raise Refused(
        "no container runtime says where it looks for CNI, and no usual folder is there",
        remedy="Mount the folders of the CNI configuration and of the CNI binaries below it, as "
        "docs/agent.md has them for each distribution",
        where=str(host),
    )


def inside(host: Path, path: PurePosixPath) -> Path:
    """Return where the agent reaches a path of the host, with links followed as on the host."""
    done: list[str] = []
    todo = list(reversed(path.parts[1:]))
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
            continue
        here = host.joinpath(*done, part)
        if links < _LINKS and here.is_symlink():
            links += 1
            target = PurePosixPath(here.readlink())
            if target.is_absolute():
                done = []
            todo += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            continue
        done.append(part)
    return host.joinpath(*done)


def _candidates(host: Path) -> Iterator[CniPlaces]:
    for name in _CONFIGS:
        config = inside(host, PurePosixPath(name))
        if config.exists():
            settings = _read_crio(config) if "crio" in name else _read_containerd(host, config)
            yield places(settings.conf or _CONF, settings.binaries or (_BINARIES,), name)
    for conf, binaries in _USUAL_FOLDERS:
        if inside(host, PurePosixPath(binaries)).is_dir():
            yield places(conf, (binaries,), "the list of usual folders")


class _Settings(Frozen):
    """The CNI folders that a runtime's configuration file sets; empty where it does not."""

    conf: str = ""
    binaries: tuple[str, ...] = ()

    def then(self, conf: object, *binaries: object) -> _Settings:
        """Return these settings, overwritten by what a later file sets."""
        folder = conf if isinstance(conf, str) else ""
        folders = tuple(one for one in binaries if isinstance(one, str) and one)
        return _Settings(folder or self.conf, folders or self.binaries)


def _read(path: Path) -> dict[str, Any]:
    """Return a TOML document as a dict; empty if the file cannot be read."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}


def _read_containerd(host: Path, config: Path) -> _Settings:
    """Return the CNI folders in containerd's configuration, in any of its versions."""
    main = _read(config)
    settings = _Settings()
    imported = [path for one in _list(main.get("imports")) for path in _imported(host, config, one)]
    for document in (main, *map(_read, imported)):
        for name in ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"):
            cni = _table(document, "plugins", name, "cni")
            settings = settings.then(
                cni.get("conf_dir"), *(_list(cni.get("bin_dirs")) or [cni.get("bin_dir")])
            )
    return settings


def _imported(host: Path, config: Path, pattern: object) -> list[Path]:
    """Return the files that match an entry of `imports` in containerd's configuration.

    A relative entry is below the folder of the configuration (containerd's resolveImports in
    cmd/containerd/server/config).
    """
    if not isinstance(pattern, str) or not pattern:
        return []
    try:
        folder = host if pattern.startswith("/") else config.parent
        return sorted(folder.glob(pattern.lstrip("/")))
    except ValueError:
        return []


def _read_crio(config: Path) -> _Settings:
    settings = _Settings()
    files = sorted(config.iterdir()) if config.is_dir() else [config]
    if config.is_dir():
        files.insert(0, config.with_name("crio.conf"))
    for file in files:
        network = _table(_read(file), "crio", "network")
        folders = _list(network.get("plugin_dirs")) or [network.get("plugin_dir")]
        settings = settings.then(network.get("network_dir"), *folders)
    return settings


def _table(document: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a nested table of a document; empty where one of the names is no table."""
    for name in names:
        inside = document.get(name)
        document = inside if isinstance(inside, dict) else {}
    return document


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# The shim on the host, by each of its names: put there, kept up to date, taken away.


def shim(folder: Path = SHIMS) -> bytes:
    """Return the shim's binary for this machine; raise Unavailable when it is not installed."""
    path = folder / platform.machine() / PLUGIN
    none = f"this installation of kube-rdma has no shim for {platform.machine()}"
    with needed(path, "read", f"{none}; the image and the wheel have one"):
        return path.read_bytes()


def install(content: bytes, folder: Path) -> bool:
    """Write the shim under all of its names; return whether one was missing or differed.

    Raise Unavailable when it cannot be written.
    """
    changed = False
    for target in (folder / name for name in NAMES):
        with _changed(target):
            if not _is_there(target, content):
                target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                replace(target, content, 0o755)
                changed = True
    return changed


def names(folders: Iterable[Path]) -> frozenset[str]:
    """Return the names of all files in these folders; an unreadable folder counts as empty."""
    file_names: set[str] = set()
    for folder in folders:
        with suppress(OSError):
            file_names.update(path.name for path in folder.iterdir())
    return frozenset(file_names)


def uninstall(folder: Path) -> None:
    """Remove the shim's binaries, which no configuration may name any more.

    Raise Unavailable when one cannot be removed.
    """
    for name in NAMES:
        with _changed(folder / name):
            (folder / name).unlink(missing_ok=True)


def _is_there(target: Path, content: bytes) -> bool:
    try:
        return target.read_bytes() == content and target.stat().st_mode & 0o777 == 0o755
    except FileNotFoundError:
        return False


def _changed(path: Path) -> AbstractContextManager[None]:
    """Return a context that raises Unavailable for an OSError of its block."""
    needs = "the folder of CNI binaries has to be the host's, writable and with room"
    return needed(path, "changed", needs)
