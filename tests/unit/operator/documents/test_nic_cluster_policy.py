"""The NicClusterPolicy of seed S3 and of later releases, and what is wrong with others."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.model.operator import ComponentImage, DrainPolicy, UpgradePolicy
from kube_rdma.operator.documents.nic_cluster_policy import load

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


def notes(spec):
    return {note.path: note.sentence for note in read(spec).notes}


def test_the_seed_s_policy_is_read_as_it_stands():
    policy = read(SEED)
    assert policy.driver.image == ComponentImage("mellanox", "ofed-driver", "5.0-2.1.8.0")
    assert policy.device_plugin.config == CONFIG
    assert policy.peer_driver.gpu_driver_path == "/run/nvidia/driver"
    assert policy.notes == ()


def test_a_section_that_is_missing_is_not_wanted():
    policy = read({})
    assert (policy.driver, policy.plugins, policy.peer_driver) == (None, (), None)


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
    spec["ofedDriver"] = {**SEED["ofedDriver"], "certConfig": {"name": "x"}}
    assert notes(spec) == {
        ("nvIpam",): "spec.nvIpam has no effect",
        ("ofedDriver", "certConfig"): "spec.ofedDriver.certConfig has no effect",
        ("secondaryNetwork", "multus"): "spec.secondaryNetwork.multus has no effect",
    }
    remedies = {note.path[-1]: note.remedy for note in read({**spec, "nvEipam": 1}).notes}
    assert remedies["nvIpam"].startswith("Write an IPPool")
    assert remedies["nvEipam"] == "Remove it"
    assert all(remedies.values())


@pytest.mark.parametrize(
    ("section", "meant"),
    [
        (None, UpgradePolicy(automatic=False, parallel=1, drain=None)),
        ({}, UpgradePolicy()),
        ({"autoUpgrade": True}, UpgradePolicy(automatic=True)),
        ({"maxParallelUpgrades": 0, "drain": {}}, UpgradePolicy(parallel=0)),
        ({"autoUpgrade": True, "drain": {}}, UpgradePolicy(automatic=True, drain=DrainPolicy())),
        ({"drain": {"enable": False}}, UpgradePolicy()),
        (
            {
                "autoUpgrade": True,
                "maxParallelUpgrades": 1,
                "safeLoad": False,
                "waitForCompletion": {"podSelector": "app=training"},
                "drain": {
                    "enable": True,
                    "force": True,
                    "podSelector": "a in (b, c),!d",
                    "timeoutSeconds": 60,
                    "deleteEmptyDir": True,
                },
            },
            UpgradePolicy(
                automatic=True,
                drain=DrainPolicy("a in (b, c),!d", force=True, delete_empty_dir=True, seconds=60),
                wait_for="app=training",
            ),
        ),
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


def test_the_section_of_networks_has_secrets_where_it_has_an_effect():
    plugin = {**SEED["devicePlugin"], "imagePullSecrets": ["mine"]}
    image = {part: plugin[part] for part in ("image", "repository", "version")}
    section = {**image, "imagePullSecrets": ["mine", "networks"]}
    policy = read({"devicePlugin": plugin, "secondaryNetwork": {"cniPlugins": section}})
    assert policy.pull_secrets == ("mine", "networks")
    section["image"] = "another"
    policy = read({"devicePlugin": plugin, "secondaryNetwork": {"cniPlugins": section}})
    assert policy.pull_secrets == ("mine",)


@pytest.mark.parametrize("others", [{"devicePlugin": SEED["devicePlugin"]}, {}])
def test_another_image_for_networks_has_no_effect_and_is_named(others):
    section = {"image": "plugins", "repository": "nvcr.io", "version": "1"}
    policy = read({**others, "secondaryNetwork": {"cniPlugins": section}})
    assert not (policy.device_plugin and policy.device_plugin.networks)
    (note,) = policy.notes
    assert note.path == ("secondaryNetwork", "cniPlugins")
    assert "has no effect: only the image of " in note.sentence
    assert "or sriovDevicePlugin serves networks" in note.sentence


DIGEST = f"sha256:{'9f' * 32}"


def test_a_digest_is_a_version():
    policy = read({"devicePlugin": {**SEED["devicePlugin"], "version": DIGEST}})
    assert policy.device_plugin.image.digest == DIGEST


@pytest.mark.parametrize("version", [DIGEST[:-1], DIGEST + "0", "sha256:", "sha1:9f", "v1:2"])
def test_a_digest_of_another_length_is_refused(version):
    text = refusal({"devicePlugin": {**SEED["devicePlugin"], "version": version}})
    assert "spec.devicePlugin.version" in text
    assert "is not the digest of an image. Write sha256: and the 64 hexadecimal digits" in text


def test_what_narrows_the_driver_is_kept():
    env = [{"name": "UNLOAD_STORAGE_MODULES", "value": "true"}]
    policy = read(
        {
            "ofedDriver": {**SEED["ofedDriver"], "env": env, "terminationGracePeriodSeconds": 60},
            "nodeAffinity": AFFINITY,
        }
    )
    assert policy.driver.env == tuple(env)
    assert policy.driver.grace_seconds == 60
    assert policy.affinity == AFFINITY
    assert policy.notes == ()


AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
        ]
    }
}


def test_a_preference_for_nodes_has_no_effect_and_is_named():
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    assert notes({"nodeAffinity": {**AFFINITY, field: []}}) == {
        ("nodeAffinity", field): f"spec.nodeAffinity.{field} has no effect"
    }


def ofed(**changes):
    return {"ofedDriver": {**SEED["ofedDriver"], **changes}}


def required(*terms):
    return {"nodeAffinity": {next(iter(AFFINITY)): {"nodeSelectorTerms": list(terms)}}}


def selecting(section, text):
    return ofed(upgradePolicy={section: {"podSelector": text}})


REFUSED = {
    "spec.ofedDriver.upgradePolicy.drain.podSelector": selecting("drain", "a=b c"),
    "spec.ofedDriver.upgradePolicy.waitForCompletion.podSelector": selecting(
        "waitForCompletion", "a in b"
    ),
    "spec.ofedDriver.env[0].secret": ofed(env=[{"name": "A", "secret": "b"}]),
    "spec.ofedDriver.terminationGracePeriodSeconds": ofed(terminationGracePeriodSeconds=-1),
    "nodeSelectorTerms[0].matchExpressions[0].operator": required(
        {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    ),
    "nodeSelectorTerms[0].matchFeelings": required({"matchFeelings": []}),
    "nodeSelectorTerms": required(),
}


@pytest.mark.parametrize(("where", "spec"), REFUSED.items(), ids=REFUSED)
def test_what_would_narrow_and_is_not_understood_is_refused_at_its_place(where, spec):
    assert f"{where}: " in refusal(spec)


@pytest.mark.parametrize("version", ["24.10-0.7.0.0-0", "doca3.5.0-26.07-0.7.0.0-0"])
def test_a_driver_can_have_an_image_for_each_kernel(version):
    spec = ofed(image="doca-driver", version=version, forcePrecompiled=True)
    assert read(spec).driver.precompiled
    assert notes(spec) == {}


@pytest.mark.parametrize(
    ("image", "version", "why"),
    [
        ("ofed-driver", "5.0-2.1.8.0", "only images of 24.4 to 26.7 have such tags"),
        ("mofed", "5.9-0.5.6.0", "only images of 24.4 to 26.7 have such tags"),
        ("doca-driver", DIGEST, "a digest is one image for all kernels"),
    ],
)
def test_an_image_that_is_not_chosen_by_its_kernel_is_told(image, version, why):
    spec = ofed(image=image, version=version, forcePrecompiled=True)
    (note,) = read(spec).notes
    assert str(note) == f"spec.ofedDriver.forcePrecompiled has no effect: {why}"
    assert note.remedy


def test_probes_and_resources_are_those_of_the_policy():
    limits = {"memory": "1Gi", "cpu": 2}
    spec = ofed(
        startupProbe={"initialDelaySeconds": 60, "periodSeconds": 5},
        containerResources=[{"name": "mofed-container", "limits": limits}],
    )
    policy = read(spec)
    assert policy.driver.probes == {"startupProbe": {"initialDelaySeconds": 60, "periodSeconds": 5}}
    assert policy.driver.resources == {"limits": limits}
    assert policy.notes == ()


def test_resources_of_another_container_are_told():
    entries = [{"name": name} for name in ("dtk", "mofed-container", "ofed-driver-container")]
    assert notes(ofed(containerResources=entries)) == {
        ("ofedDriver", "containerResources", 0): (
            "spec.ofedDriver.containerResources[0] has no effect: no such container"
        ),
        ("ofedDriver", "containerResources", 2): (
            "spec.ofedDriver.containerResources[2] has no effect: "
            "an entry before it is about the container"
        ),
    }


@pytest.mark.parametrize("amount", ["1Gb", "", "-1", True, None, [1]])
def test_an_amount_that_no_pod_may_have_is_refused(amount):
    entries = [{"name": "mofed-container", "limits": {"memory": amount}}]
    text = refusal(ofed(containerResources=entries))
    assert "spec.ofedDriver.containerResources[0].limits.memory: " in text
    assert 'Write a number and its suffix, such as "500m" or "2Gi".' in text


def test_a_drain_that_nothing_asks_for_is_named():
    """Left out, autoUpgrade is false as in NVIDIA's operator."""
    path = ("ofedDriver", "upgradePolicy", "drain")
    assert notes(ofed(upgradePolicy={"drain": {"enable": True}})) == {
        path: "spec.ofedDriver.upgradePolicy.drain has no effect while autoUpgrade is false"
    }


def test_both_spellings_at_once_are_refused():
    spec = {**SEED, "rdmaSharedDevicePlugin": SEED["devicePlugin"]}
    assert refusal(spec) == (
        "NicClusterPolicy example: spec.rdmaSharedDevicePlugin: devicePlugin and "
        "rdmaSharedDevicePlugin are two spellings of one section. Keep one of them."
    )


def test_an_image_with_a_space_is_refused():
    spec = {"ofedDriver": {**SEED["ofedDriver"], "image": "ofed driver"}}
    assert refusal(spec) == (
        'NicClusterPolicy example: spec.ofedDriver.image: "ofed driver" is not a name of an image. '
        r"Allowed characters: [a-zA-Z0-9\-_]+."
    )


def test_an_image_without_a_version_is_refused():
    spec = {"ofedDriver": {"image": "ofed-driver", "repository": "mellanox"}}
    assert refusal(spec) == (
        "NicClusterPolicy example: spec.ofedDriver.version: the field is missing. "
        "Add it here, or spec.global.version."
    )


@pytest.mark.parametrize(
    ("field", "section", "says"),
    [
        (
            "nodeAffinity",
            {"requiredDuringSchedulingIgnoredDuringExecution": {}},
            'nodeSelectorTerms: the field is missing. Add "nodeSelectorTerms": …',
        ),
        (
            "ofedDriver",
            {**SEED["ofedDriver"], "env": [{"name": ""}]},
            'env[0].name: "" does not fit here. String should have at least 1 character.',
        ),
    ],
)
def test_what_has_no_sentence_or_example_of_its_own_is_refused_too(field, section, says):
    """The operator reads the other policies, and goes on."""
    assert says in refusal({**SEED, field: section})


def test_a_fault_of_the_configuration_has_its_own_line_and_field():
    wrong = CONFIG.replace("1000", "0")
    text = refusal({"devicePlugin": {**SEED["devicePlugin"], "config": wrong}})
    assert "spec.devicePlugin.config" in text
    assert "5" in text
    assert "rdmaHcaMax" in text


PLUGINS = ("devicePlugin", "rdmaSharedDevicePlugin", "sriovDevicePlugin")


@pytest.mark.parametrize("section", PLUGINS)
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_configuration_is_refused(section, text):
    spec = {section: {**SEED["devicePlugin"], "config": text}}
    assert f"spec.{section}.config: the configuration of the device plugin is empty" in refusal(
        spec
    )


@pytest.mark.parametrize("section", PLUGINS)
def test_without_a_configuration_the_administrator_s_config_map_counts(section):
    """As in NVIDIA's operator, whose webhook has a test for it."""
    plugin = {part: SEED["devicePlugin"][part] for part in ("image", "repository", "version")}
    (made,) = read({section: plugin}).plugins
    assert (made.config, made.resources) == (None, ())


LIST = """{"resourceList": [
  {"resourcePrefix": "nvidia.com", "resourceName": "functions_a",
   "selectors": {"pfNames": ["ens3f0#0-3"], "isRdma": true}}]}"""
SRIOV = {**SEED["devicePlugin"], "image": "sriov-plugin", "config": LIST}


def test_the_plugin_of_virtual_functions_stands_beside_the_shared_one():
    policy = read({**SEED, "sriovDevicePlugin": SRIOV})
    assert policy.sriov_plugin.resources == ("nvidia.com/functions_a",)
    assert policy.sriov_plugin.config == LIST
    assert policy.device_plugin.resources == ("rdma/hca_shared_devices_a",)
    assert policy.notes == ()


def test_a_fault_in_a_list_of_functions_has_its_line_and_field():
    text = refusal({"sriovDevicePlugin": {**SRIOV, "config": LIST.replace("#0-3", "#3-0")}})
    assert "spec.sriovDevicePlugin.config" in text
    assert "resourceList[0].selectors" in text
    assert "pfNames[0]" in text


def test_networks_go_with_the_plugin_whose_image_it_is():
    image = {part: SRIOV[part] for part in ("image", "repository", "version")}
    networks = {"secondaryNetwork": {"cniPlugins": image}}
    policy = read({"sriovDevicePlugin": SRIOV, "devicePlugin": SEED["devicePlugin"], **networks})
    assert (policy.sriov_plugin.networks, policy.device_plugin.networks) == (True, False)
    assert policy.notes == ()


def test_of_two_plugins_with_one_image_the_shared_one_serves_networks_and_that_is_told():
    """Two agents with networks on a node would undo each other's work."""
    plugin = SEED["devicePlugin"]
    image = {part: plugin[part] for part in ("image", "repository", "version")}
    spec = {
        "rdmaSharedDevicePlugin": plugin,
        "sriovDevicePlugin": {**SRIOV, **image},
        "secondaryNetwork": {"cniPlugins": image},
    }
    policy = read(spec)
    assert (policy.device_plugin.networks, policy.sriov_plugin.networks) == (True, False)
    (note,) = policy.notes
    assert "serves shares of rdmaSharedDevicePlugin alone" in note.sentence
    assert "one NodePolicy into rdmaSharedDevicePlugin.config" in note.remedy


@pytest.mark.parametrize(
    ("spec", "empty"), [({}, True), ({"nvIpam": {"image": "x"}}, True), (SEED, False)]
)
def test_a_policy_of_others_parts_alone_is_empty(spec, empty):
    assert read(spec).is_empty is empty
