"""Policies with every field of NVIDIA's operator at four of its releases: all of it has a meaning.

The fields are the json tags of nicclusterpolicy_types.go (Mellanox/network-operator) at its tags.
A field that a release has and the policy here does not fails; so does one that is told of as
without effect, though it is served.
"""

from pathlib import Path

import pytest

from kube_rdma.lib.text.document import section
from kube_rdma.lib.text.reader import read
from kube_rdma.operator.documents.nic_cluster_policy import of_spec
from kube_rdma.operator.rules.driver_sets import driver_image
from kube_rdma.operator.rules.placement import NodeGroup

FOLDER = Path(__file__).parents[3] / "data" / "nic-cluster-policies"
GROUP = NodeGroup("amd64", "ubuntu", "24.04", "6.8.0-45-generic")
FIRST = {*("image", "repository", "version", "config"), *("ofedDriver", "nvPeerDriver")}
FIELDS = {"0.1.0": FIRST | {"devicePlugin", "gpuDriverSourcePath"}}
FIELDS["1.4"] = FIRST | {
    *("autoUpgrade", "certConfig", "cniPlugins", "deleteEmptyDir", "drain", "enable", "enabled"),
    *("env", "force", "gpuDriverSourcePath", "ibKubernetes", "imagePullSecrets"),
    *("initialDelaySeconds", "ipamPlugin", "ipoib", "livenessProbe", "maxParallelUpgrades"),
    *("multus", "name", "nodeAffinity", "pKeyGUIDPoolRangeEnd", "pKeyGUIDPoolRangeStart"),
    *("periodSeconds", "periodicUpdateSeconds", "podSelector", "psp", "rdmaSharedDevicePlugin"),
    *("readinessProbe", "repoConfig", "secondaryNetwork", "sriovDevicePlugin", "startupProbe"),
    *("timeoutSeconds", "ufmSecret", "upgradePolicy"),
}
_GONE = {"enabled", "psp", "gpuDriverSourcePath", "nvPeerDriver"}
FIELDS["24.10"] = (FIELDS["1.4"] - _GONE) | {
    *("containerResources", "docaTelemetryService", "enableWebhook", "forcePrecompiled"),
    *("fromConfigMap", "limits", "nicFeatureDiscovery", "nvIpam", "requests", "safeLoad"),
    *("terminationGracePeriodSeconds", "tolerations", "useCdi", "waitForCompletion"),
}
FIELDS["26.7"] = (FIELDS["24.10"] - {"ipamPlugin"}) | {
    *("availableStorageSize", "configurationDaemon", "create", "deploymentNodeAffinity"),
    *("deploymentTolerations", "failureThreshold", "global", "logLevel", "operator"),
    *("nicConfigurationOperator", "nicFirmwareStorage", "pvcName", "spectrumXOperator"),
    *("storageClassName", "xPlane"),
}
_COMPONENTS = {"secondaryNetwork.multus", "secondaryNetwork.cniPlugins", "secondaryNetwork.ipoib"}
_OF_SITE = {"ofedDriver.certConfig", "ofedDriver.repoConfig"}
_IPAM = {"secondaryNetwork.ipamPlugin", "ibKubernetes"}
_CDI = {"rdmaSharedDevicePlugin.useCdi", "sriovDevicePlugin.useCdi"}
_OF_24 = {"nvIpam", "nicFeatureDiscovery", "docaTelemetryService", *_CDI}
WITHOUT_EFFECT = {
    "0.1.0": set(),
    "1.4": {"psp", *_COMPONENTS, *_OF_SITE, *_IPAM},
    "24.10": {*_COMPONENTS, *_OF_SITE, *_IPAM, *_OF_24},
    "26.7": {
        *(_COMPONENTS | _OF_SITE | _OF_24 | {"ibKubernetes"}),
        *("deploymentNodeAffinity", "deploymentTolerations"),
        *("nicConfigurationOperator", "spectrumXOperator"),
    },
}
IMAGES = {
    "0.1.0": "ofed-driver-5.0-2.1.8.0:amd64-ubuntu24.04-kver6.8.0-45-generic",
    "1.4": "mofed-5.6-1.0.3.3:ubuntu24.04-amd64",
    "24.10": "doca-driver:24.10-1.2.3.4-0-6.8.0-45-generic-ubuntu24.04-amd64",
    "26.7": "doca-driver:doca3.5.0-26.07-1.2.3.4-0-ubuntu24.04-amd64",
}
OFFERED = {
    "0.1.0": ["rdma/fast_a"],
    **{key: ["rdma/fast_a", "nvidia.com/functions_a"] for key in ("1.4", "24.10", "26.7")},
}
RELEASES = tuple(FIELDS)


def document(release):
    path = FOLDER / f"{release}.yaml"
    return section(read(path.read_bytes(), path.name), ("spec",))


def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_each_file_is_of_a_release():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(RELEASES)


@pytest.mark.parametrize("release", RELEASES)
def test_a_policy_has_every_field_of_its_release(release):
    assert FIELDS[release] <= set(keys(document(release).value))


@pytest.mark.parametrize("release", RELEASES)
def test_what_has_no_effect_is_told_with_a_remedy_and_the_rest_is_served(release):
    policy = of_spec(document(release))
    assert {".".join(map(str, note.path)) for note in policy.notes} == WITHOUT_EFFECT[release]
    assert all(note.remedy for note in policy.notes)


@pytest.mark.parametrize("release", RELEASES)
def test_a_policy_means_the_images_and_resources_of_its_release(release):
    policy = of_spec(document(release))
    wanted = f"registry.example.com/cards/{IMAGES[release]}"
    assert driver_image(policy.driver, GROUP) == wanted
    assert [name for plugin in policy.plugins for name in plugin.resources] == OFFERED[release]
