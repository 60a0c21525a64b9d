"""Folders of the kubelet, and its record."""

import json
import os
import socket

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin, Registry, WatchedPlugin, serve
from kube_rdma.adapters.kubelet.folders import KNOWN, NAME, DeviceCheckpoint, Folders, find_folders
from kube_rdma.model.holdings import RecordedGrant
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.adapters.kubelet.conftest import Desk, make_offer, running

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


# In the form of kubernetes@v1.36.3 (devicemanager/checkpoint), with a share near to two NUMA nodes.
WRITTEN = """\
{"Data":{"PodDeviceEntries":[{"PodUID":"5b0e","ContainerName":"main","ResourceName":"rdma/hca",\
"DeviceIDs":{"0":["hca-2","hca-1"],"1":["hca-2"]},"AllocResp":"Eh4KCQ=="}],\
"RegisteredDevices":{"rdma/hca":["hca-1","hca-2"]}},"Checksum":2154398176}"""


def test_what_the_kubelet_wrote(tmp_path):
    (tmp_path / NAME).write_text(WRITTEN)
    grant = RecordedGrant("5b0e", "main", "rdma/hca", ("hca-1", "hca-2"))
    assert DeviceCheckpoint(tmp_path).read() == (grant,)


@pytest.mark.parametrize("entries", [None, []])
def test_nothing_was_given(tmp_path, entries):
    assert DeviceCheckpoint(tmp_path).read() == (), "no kubelet has written yet"
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {}}
    (tmp_path / NAME).write_text(json.dumps({"Data": data, "Checksum": 1}))
    assert DeviceCheckpoint(tmp_path).read() == ()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"Data": 3}', "\udc80"])
def test_a_record_of_another_form_is_one_sentence(tmp_path, text):
    (tmp_path / NAME).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(Unavailable, match=f"{NAME} of the shares that pods hold cannot be read"):
        DeviceCheckpoint(tmp_path).read()


async def test_a_grant_is_recorded_before_the_container_starts_and_after_its_end(directory):
    """The end is recorded when the kubelet writes again, for whatever reason."""
    record = DeviceCheckpoint(directory)
    async with FakeKubelet(directory) as kubelet, running(directory, make_offer(2)) as plugin:
        await kubelet.until(lambda: kubelet.healthy("rdma/hca"))
        await kubelet.allocate("rdma/hca", 1, place=ContainerPlace("old", uid="uid-old"))
        assert [grant.uid for grant in record.read()] == ["uid-old"]
        kubelet.remove_pod("old")
        assert [grant.uid for grant in record.read()] == ["uid-old"]
        lists = kubelet.states["rdma/hca"]
        plugin.publish(make_offer(3))
        await kubelet.until(lambda: kubelet.states["rdma/hca"] > lists)
        assert record.read() == ()
