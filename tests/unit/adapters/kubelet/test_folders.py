"""Where the kubelet is, wherever it was put."""

import os
import socket

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin, Registry, WatchedPlugin, serve
from kube_rdma.adapters.kubelet.folders import KNOWN, Folders, find_folders
from tests.unit.adapters.kubelet.conftest import Desk, make_offer

USUAL = "var/lib/kubelet"
K0S = "var/lib/k0s/kubelet"


def make(host, *folders, sockets=()):
    for name in folders:
        (host / name).mkdir(parents=True)
    for name in sockets:
        (host / name).mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        folder = os.open(host / name, os.O_PATH)
        listener.bind(f"/proc/self/fd/{folder}/kubelet.sock")  # a socket's path has 107 bytes
        os.close(folder)
        listener.close()


def test_the_usual_place(directory):
    make(
        directory,
        f"{USUAL}/plugins_registry",
        sockets=(f"{USUAL}/device-plugins", f"{USUAL}/pod-resources"),
    )
    root = directory / USUAL
    assert find_folders(host=directory) == Folders(
        root / "device-plugins", root / "plugins_registry", root / "pod-resources/kubelet.sock"
    )


def test_another_root_leaves_device_plugins_where_they_were(directory):
    """As k0s does: device-plugins is a constant of Kubernetes; leavings elsewhere do not matter."""
    make(
        directory,
        f"{USUAL}/plugins_registry",
        f"{K0S}/plugins_registry",
        f"{K0S}/device-plugins",
        sockets=(f"{USUAL}/device-plugins", f"{K0S}/pod-resources"),
    )
    assert find_folders(host=directory) == Folders(
        directory / USUAL / "device-plugins",
        directory / K0S / "plugins_registry",
        directory / K0S / "pod-resources/kubelet.sock",
    )


@pytest.mark.parametrize("root", KNOWN)
def test_a_socket_beats_a_folder(directory, root):
    name = str(root).lstrip("/")
    if name != USUAL:
        make(directory, f"{USUAL}/device-plugins")
    make(directory, sockets=(f"{name}/device-plugins",))
    assert find_folders(host=directory).device_plugins == directory / name / "device-plugins"


def test_a_root_that_is_named(directory):
    make(directory, "srv/device-plugins", "srv/plugins_registry")
    named = directory / "srv"
    assert find_folders((named,)) == Folders(
        named / "device-plugins", named / "plugins_registry", None
    )


def test_a_pod_that_sees_nothing_else(directory):
    """Two mounts are enough for a plain device plugin."""
    make(directory, f"{USUAL}/device-plugins")
    found = find_folders(host=directory)
    assert found == Folders(directory / USUAL / "device-plugins", None, None)
    answers = Desk().answers()
    assert isinstance(serve(Registry.DEVICE_PLUGINS, found, make_offer(), answers), DevicePlugin)
    with pytest.raises(Refused, match="plugins_registry is not there"):
        serve(Registry.PLUGINS_REGISTRY, found, make_offer(), answers)


def test_a_registry_is_used_where_it_is_there(directory):
    make(directory, f"{USUAL}/device-plugins", f"{USUAL}/plugins_registry")
    found = find_folders(host=directory)
    served = serve(Registry.PLUGINS_REGISTRY, found, make_offer(), Desk().answers())
    assert isinstance(served, WatchedPlugin)


def test_no_kubelet(directory):
    with pytest.raises(Refused, match=r"there is no device-plugins below .*k0s.*--kubelet-root"):
        find_folders(host=directory)
