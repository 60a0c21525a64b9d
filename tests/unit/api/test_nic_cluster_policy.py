"""The NicClusterPolicy of seed S3 and of later releases, and what is wrong with others."""

import json

import pytest

from kube_rdma.api.nic_cluster_policy import load
from kube_rdma.model.cluster_policy import ComponentImage
from kube_rdma.model.driver_upgrade import UpgradePolicy
from kube_rdma.model.errors import Refused

CONFIG = """{
  "configList": [
    {
      "resourceName": "hca_shared_devices_a",
      "rdmaHcaMax": 1000,
      "devices": ["ens2f0"]
    }
  ]
}
"""
SEED = {
    "ofedDriver": {"image": "ofed-driver", "repository": "mellanox", "version": "5.0-2.1.8.0"},
    "devicePlugin": {
        "image": "k8s-rdma-shared-dev-plugin",
        "repository": "mellanox",
        "version": "v1.0.0",
        "config": CONFIG,
    },
    "nvPeerDriver": {
        "image": "nv-peer-mem-driver",
        "repository": "mellanox",
        "version": "1.0-9",
        "gpuDriverSourcePath": "/run/nvidia/driver",
    },
}


def read(spec):
    return load(json.dumps(spec).encode(), "NicClusterPolicy example")


def refusal(spec):
    with pytest.raises(Refused) as caught:
        read(spec)
    return str(caught.value)


def test_the_seed_s_policy_is_read_as_it_stands():
    policy = read(SEED)
    assert policy.driver == ComponentImage("mellanox", "ofed-driver", "5.0-2.1.8.0")
    assert policy.device_plugin.config == CONFIG
    assert policy.peer_driver.gpu_driver_path == "/run/nvidia/driver"
    assert policy.notes == ()


def test_a_section_that_is_missing_is_not_wanted():
    policy = read({})
    assert (policy.driver, policy.device_plugin, policy.peer_driver) == (None, None, None)


def test_later_releases_say_repository_and_version_once():
    policy = read(
        {
            "global": {
                "repository": "nvcr.io/nvidia/mellanox",
                "version": "v1.5.2",
                "imagePullSecrets": ["ngc"],
            },
            "rdmaSharedDevicePlugin": {
                "image": "k8s-rdma-shared-dev-plugin",
                "config": CONFIG,
                "imagePullSecrets": ["ngc", "mine"],
            },
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    )
    assert policy.device_plugin.image == ComponentImage(
        "nvcr.io/nvidia/mellanox", "k8s-rdma-shared-dev-plugin", "v1.5.2"
    )
    assert policy.pull_secrets == ("ngc", "mine")
    assert policy.tolerations == ({"key": "gpu", "operator": "Exists"},)


def test_what_is_not_deployed_is_named():
    spec = {**SEED, "nvIpam": {"image": "x"}, "secondaryNetwork": {"multus": {"image": "y"}}}
    spec["ofedDriver"] = {**SEED["ofedDriver"], "upgradePolicy": {"safeLoad": True}}
    assert read(spec).notes == (
        "spec.nvIpam has no effect",
        "spec.ofedDriver.upgradePolicy.safeLoad has no effect",
        "spec.secondaryNetwork.multus has no effect",
    )


@pytest.mark.parametrize(
    ("section", "meant"),
    [
        (None, UpgradePolicy(automatic=True, parallel=1, drain=False)),
        ({}, UpgradePolicy()),
        ({"autoUpgrade": False}, UpgradePolicy(automatic=False)),
        ({"maxParallelUpgrades": 0, "drain": {}}, UpgradePolicy(parallel=0, drain=True)),
        ({"drain": {"enable": False}}, UpgradePolicy()),
    ],
)
def test_drivers_are_upgraded_as_the_policy_says(section, meant):
    driver = SEED["ofedDriver"] | ({} if section is None else {"upgradePolicy": section})
    assert read({"ofedDriver": driver}).upgrades == meant


def test_the_device_plugin_s_own_image_puts_networks_into_pods():
    plugin = SEED["devicePlugin"]
    image = {part: plugin[part] for part in ("image", "repository", "version")}
    policy = read({"devicePlugin": plugin, "secondaryNetwork": {"cniPlugins": image}})
    assert policy.device_plugin.networks
    assert policy.device_plugin.resources == ("rdma/hca_shared_devices_a",)
    assert policy.notes == ()


@pytest.mark.parametrize("others", [{"devicePlugin": SEED["devicePlugin"]}, {}])
def test_another_image_for_networks_has_no_effect_and_is_named(others):
    section = {"image": "plugins", "repository": "nvcr.io", "version": "1"}
    policy = read({**others, "secondaryNetwork": {"cniPlugins": section}})
    assert not (policy.device_plugin and policy.device_plugin.networks)
    assert policy.notes == (
        "spec.secondaryNetwork.cniPlugins has no effect: no device plugin's image",
    )


def test_both_spellings_at_once_are_refused():
    spec = {**SEED, "rdmaSharedDevicePlugin": SEED["devicePlugin"]}
    assert refusal(spec) == (
        "NicClusterPolicy example: spec.rdmaSharedDevicePlugin: devicePlugin and "
        "rdmaSharedDevicePlugin are two spellings of one section. Keep one of them."
    )


def test_an_image_with_a_space_is_refused():
    spec = {"ofedDriver": {**SEED["ofedDriver"], "image": "ofed driver"}}
    assert refusal(spec) == (
        'NicClusterPolicy example: spec.ofedDriver.image: "ofed driver" is no name of an image. '
        r"Allowed characters: [a-zA-Z0-9\-_]+."
    )


def test_an_image_without_a_version_is_refused():
    spec = {"ofedDriver": {"image": "ofed-driver", "repository": "mellanox"}}
    assert refusal(spec) == (
        "NicClusterPolicy example: spec.ofedDriver.version: the field is missing. "
        "Add it here, or spec.global.version."
    )


def test_a_fault_of_the_configuration_has_its_own_line_and_field():
    wrong = CONFIG.replace("1000", "0")
    text = refusal({"devicePlugin": {**SEED["devicePlugin"], "config": wrong}})
    assert "spec.devicePlugin.config" in text
    assert "5" in text
    assert "rdmaHcaMax" in text


@pytest.mark.parametrize("text", ["", " \n", None])
def test_a_device_plugin_without_configuration_is_refused(text):
    spec = {"devicePlugin": {**SEED["devicePlugin"], "config": text}}
    assert "the device plugin has no configuration" in refusal(spec)
