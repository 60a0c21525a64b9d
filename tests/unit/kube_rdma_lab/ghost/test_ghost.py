"""The ghosts' plugin: what sysfs shows becomes what the kubelet and containers are told."""

import json

import pytest
import yaml

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.kubelet import device_plugin
from kube_rdma.model.device import Gpu
from kube_rdma.model.pools import ShareId
from kube_rdma_lab.ghost import install
from kube_rdma_lab.ghost.claim_driver import CARD_DRIVER, DRIVER, card_slice_spec, slice_spec
from kube_rdma_lab.ghost.plugin import Ghost, allocate, find_ghosts, offer
from tests.kit.nodes import device, seat

GHOSTS = (Ghost("0000:23:00.0", 0), Ghost("0000:43:00.0", 1), Ghost("0000:44:00.0", None))


def test_only_devices_of_display_class_are_ghosts(tmp_path):
    functions = {
        "0000:44:00.0": ("0x038000", -1),
        "0000:43:00.0": ("0x030000", 1),
        "0000:25:00.0": ("0x020000", 0),
    }
    for address, (kind, node) in functions.items():
        folder = tmp_path / address
        folder.mkdir()
        (folder / "class").write_text(f"{kind}\n")
        (folder / "numa_node").write_text(f"{node}\n")
    assert tuple(find_ghosts(tmp_path)) == GHOSTS[1:]


def test_the_kubelet_hears_of_each_ghost_with_its_numa_node():
    devices = device_plugin.device_list(offer(GHOSTS)).devices
    hints = {each.ID: [node.ID for node in each.topology.nodes] for each in devices}
    assert hints == {"0000:23:00.0": [0], "0000:43:00.0": [1], "0000:44:00.0": []}


def test_a_container_is_told_its_ghosts_and_gets_no_device_node():
    grant = allocate(offer(GHOSTS), [ShareId("0000:43:00.0"), ShareId("0000:23:00.0")])
    answer = device_plugin.container_response(grant)
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "0000:23:00.0,0000:43:00.0"}
    assert not answer.devices


def test_a_ghost_that_is_gone_is_refused():
    with pytest.raises(Refused, match=r"there is no ghost 0000:99:00\.0"):
        allocate(offer(GHOSTS), [ShareId("0000:99:00.0")])


def test_the_manifest_brings_the_very_program_into_a_namespace_of_its_own():
    namespace, program, daemonset = yaml.safe_load_all(install.manifest())
    assert program["data"]["plugin.py"] == (install.FOLDER / "plugin.py").read_text()
    assert {namespace["metadata"]["name"]} == {
        each["metadata"]["namespace"] for each in (program, daemonset)
    }
    (volume,) = (
        each for each in daemonset["spec"]["template"]["spec"]["volumes"] if "configMap" in each
    )
    assert volume["configMap"]["name"] == program["metadata"]["name"]
    assert json.dumps(daemonset).count("plugin.py") == 1


def test_the_claim_driver_gives_what_nvidia_s_does():
    """The attributes that people select by: those of the standard, type, uuid."""
    gpu = Gpu(seat(0x23), 0x030200, 0x10DE, 0x2330, None)
    lost = Gpu(replace(gpu.seat, numa_node=None), 0x030200, 0x10DE, 0x2330, None)
    spec = slice_spec("node-1", [gpu, lost])
    device, without = spec["devices"]
    numa = "resource.kubernetes.io/numaNode"
    assert device["attributes"][numa] == {"int": gpu.seat.numa_node}
    assert numa not in without["attributes"]
    assert device["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": gpu.seat.pci}
    assert device["attributes"]["resource.kubernetes.io/pcieRoot"] == {"string": gpu.seat.root}
    assert spec["pool"]["resourceSliceCount"] == 1


def test_the_claim_driver_stands_for_dranet_too():
    """Cards are found by its words; a device without a place is none of them."""
    card = device(0, seat(0x81))
    spec = card_slice_spec("node-1", [card, replace(card, pci=None)])
    (entry,) = spec["devices"]
    assert entry["name"] == "pci-0000-81-00-0"
    assert entry["attributes"]["dra.net/rdmaDevice"] == {"string": card.name}
    assert entry["attributes"]["dra.net/pciAddress"] == {"string": card.pci}


@pytest.mark.parametrize(
    ("what", "driver"), [(install.CLAIMS, DRIVER), (install.CARD_CLAIMS, CARD_DRIVER)]
)
def test_the_claim_driver_comes_with_its_program_and_its_class(what, driver):
    listed = list(yaml.safe_load_all(install.manifest(what)))
    (program,) = (each for each in listed if each["kind"] == "ConfigMap")
    text = (install.FOLDER / "claim_driver.py").read_text()
    assert program["data"] == {"claim_driver.py": text}
    (device_class,) = (each for each in listed if each["kind"] == "DeviceClass")
    assert device_class["metadata"]["name"] == driver
