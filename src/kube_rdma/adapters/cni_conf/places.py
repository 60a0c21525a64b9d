"""Where the container runtime of a node looks for CNI, read from the runtime's own configuration.

Distributions differ and change their minds between releases; what their containerd or CRI-O was
told is the truth. Only where there is no such file the table's folders are tried. The host's root
is seen under a prefix, so links are followed inside of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kube_rdma.model.errors import Refused

_LINKS = 40  # as many as the kernel follows


@dataclass(frozen=True, slots=True)
class Places:
    """Both folders as the host names them; `source` tells who said so."""

    conf: PurePosixPath
    binaries: PurePosixPath
    source: str


@dataclass(frozen=True, slots=True)
class _Runtime:
    """A configuration to read, and what holds where it does not say."""

    config: str
    conf: str
    binaries: str


# The special ones first: a node of k3s may have a containerd of its own besides.
_RUNTIMES = (
    _Runtime(
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        "/var/lib/rancher/k3s/data/current/bin",
    ),
    _Runtime(
        "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        "/etc/cni/net.d",
        "/opt/cni/bin",
    ),
    _Runtime(
        "/var/snap/microk8s/current/args/containerd.toml",
        "/var/snap/microk8s/current/args/cni-network",
        "/var/snap/microk8s/current/opt/cni/bin",
    ),
    _Runtime("/etc/crio/crio.conf.d", "/etc/cni/net.d", "/opt/cni/bin"),
    _Runtime("/etc/crio/crio.conf", "/etc/cni/net.d", "/opt/cni/bin"),
    _Runtime("/etc/containerd/config.toml", "/etc/cni/net.d", "/opt/cni/bin"),
)

# Pairs that distributions use, for a host whose runtime has no file: conf, binaries.
_KNOWN = (
    ("/etc/kubernetes/cni/net.d", "/var/lib/cni/bin"),  # OpenShift
    ("/etc/cni/net.d", "/home/kubernetes/bin"),  # GKE
    ("/etc/cni/net.d", "/opt/cni/bin"),
)


def find(host: Path = Path("/")) -> Places:
    """The folders of this host; raise Refused when none can be made out.

    A runtime counts when the folder of its configuration is there: what was left of another one
    usually names folders that are gone.
    """
    for places in _candidates(host):
        if inside(host, places.conf).is_dir():
            return places
    raise Refused(
        "no container runtime says where it looks for CNI, and no usual folder is there",
        remedy="Name them: the folder of the CNI configuration and the folder of the CNI binaries",
        where=str(host),
    )


def inside(host: Path, path: PurePosixPath) -> Path:
    """The path of the host as we reach it, with every link followed as the host would."""
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


def _candidates(host: Path) -> Iterator[Places]:
    for runtime in _RUNTIMES:
        config = inside(host, PurePosixPath(runtime.config))
        if not config.exists():
            continue
        said = (
            _said_by_crio(config) if "crio" in runtime.config else _said_by_containerd(host, config)
        )
        conf, binaries = said.get("conf"), said.get("binaries")
        yield Places(
            PurePosixPath(conf or runtime.conf),
            PurePosixPath(binaries or runtime.binaries),
            runtime.config,
        )
    for conf, binaries in _KNOWN:
        if inside(host, PurePosixPath(binaries)).is_dir():
            yield Places(PurePosixPath(conf), PurePosixPath(binaries), "folders that are there")


def _read(path: Path) -> dict[str, Any]:
    """What cannot be read says nothing: the runtime would not run with it either."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _said_by_containerd(host: Path, config: Path) -> dict[str, str]:
    """Of all versions of its format: the CRI plugin has had three names, the folder two."""
    main = _read(config)
    said: dict[str, str] = {}
    imported = [
        found
        for pattern in main.get("imports", [])
        if isinstance(pattern, str) and pattern.startswith("/")
        for found in sorted(host.glob(pattern.lstrip("/")))
    ]
    for document in (main, *map(_read, imported)):
        plugins = document.get("plugins", {})
        for name in ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"):
            cni = plugins.get(name, {}).get("cni", {})
            folders = cni.get("bin_dirs") or [cni.get("bin_dir")]
            found = {"conf": cni.get("conf_dir"), "binaries": folders[0]}
            said |= {key: value for key, value in found.items() if value}
    return said


def _said_by_crio(config: Path) -> dict[str, str]:
    said: dict[str, str] = {}
    files = sorted(config.iterdir()) if config.is_dir() else [config]
    if config.is_dir():
        files.insert(0, config.with_name("crio.conf"))
    for file in files:
        network = _read(file).get("crio", {}).get("network", {})
        folders = network.get("plugin_dirs") or [network.get("plugin_dir")]
        found = {"conf": network.get("network_dir"), "binaries": folders[0]}
        said |= {key: value for key, value in found.items() if value}
    return said
