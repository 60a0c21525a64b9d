"""Finds the folders of this node's kubelet, which are not where everybody expects them.

``--root-dir`` moves pod-resources and plugins_registry, but not device-plugins: that path is a
constant (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go), which some distributions
change. So each is looked for by itself, and a socket that is there beats a mere folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.adapters.kubelet.directory import KUBELET_SOCKET, identity

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
    """Where the kubelet is reached; None is what this process does not see."""

    device_plugins: Path
    plugins_registry: Path | None
    pod_resources: Path | None  # the socket


def find_folders(roots: Sequence[Path] = KNOWN, host: Path = Path("/")) -> Folders:
    """The folders below the first of `roots` that has them, FIXED being the last.

    `host` is where the host's root is mounted. Raise Refused when there is no device-plugins.
    """
    # Joined as text: a path that begins with / would replace `host`.
    places = [host / str(root).lstrip("/") for root in dict.fromkeys((*roots, FIXED))]

    def first(*tests: Callable[[Path], bool]) -> Path | None:
        return next((place for test in tests for place in places if test(place)), None)

    plugins = first(
        lambda place: _answers(place / DEVICE_PLUGINS), lambda p: _is_folder(p / DEVICE_PLUGINS)
    )
    if plugins is None:
        raise Refused(
            f"there is no {DEVICE_PLUGINS} below {', '.join(map(str, places))}",
            remedy=(
                "Mount the host's /var/lib/kubelet/device-plugins there (hostPath), or name the "
                "folder with --kubelet-root"
            ),
        )
    root = first(
        lambda place: _answers(place / POD_RESOURCES), lambda p: _is_folder(p / PLUGINS_REGISTRY)
    )
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
    """Whether a kubelet left its socket there."""
    return identity(folder / KUBELET_SOCKET) is not None
