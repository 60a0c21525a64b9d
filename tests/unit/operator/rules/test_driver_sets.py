"""DaemonSets of drivers, by the release of their image, and who uses a driver."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.install.installation import described
from kube_rdma.model.operator import (
    CONTRACTS,
    OF_0_1,
    OF_1,
    OF_23,
    OF_26,
    ClusterPolicy,
    ComponentImage,
    DaemonSetProgress,
    PolicyDriver,
    contract_of,
)
from kube_rdma.operator.rules import placement
from kube_rdma.operator.rules.driver_sets import driver_image, driver_objects, is_share
from kube_rdma.operator.rules.sync import components, judged

REPOSITORY = "registry.example.com/cards"
DIGEST = f"sha256:{'1f' * 32}"
GROUP = placement.NodeGroup("amd64", "ubuntu", "24.04", "6.8.0-45-generic")
REDHAT = placement.NodeGroup("arm64", "rhcos", "4.16", "5.14.0-427.22.1.el9_4.aarch64")
TAG = re.compile(r"[\w][\w.-]{0,127}")  # as the distribution specification has it


def image(name, version):
    return ComponentImage(REPOSITORY, name, version)


# The rows are state_ofed.go and manifests of Mellanox/network-operator at tags of these releases.
NAMES = {
    ("ofed-driver", "5.0-2.1.8.0"): (
        OF_0_1,
        "ofed-driver-5.0-2.1.8.0:amd64-ubuntu24.04-kver6.8.0-45-generic",
    ),
    ("mofed", "5.2-1.0.4.0"): (OF_1, "mofed-5.2-1.0.4.0:ubuntu24.04-amd64"),
    ("mofed", "5.6-1.0.3.3"): (OF_1, "mofed-5.6-1.0.3.3:ubuntu24.04-amd64"),
    ("mofed", "5.7-0.1.2.0"): (OF_23, "mofed:5.7-0.1.2.0-ubuntu24.04-amd64"),
    ("mofed", "23.10-0.5.5.0"): (OF_23, "mofed:23.10-0.5.5.0-ubuntu24.04-amd64"),
    ("doca-driver", "24.01-0.3.3.1-0"): (OF_23, "doca-driver:24.01-0.3.3.1-0-ubuntu24.04-amd64"),
    ("doca-driver", "24.04-0.4.0.0-0"): (OF_26, "doca-driver:24.04-0.4.0.0-0-ubuntu24.04-amd64"),
    ("doca-driver", "doca3.5.0-26.07-0.7.0.0-0"): (
        OF_26,
        "doca-driver:doca3.5.0-26.07-0.7.0.0-0-ubuntu24.04-amd64",
    ),
    ("doca-driver", DIGEST): (OF_26, f"doca-driver@{DIGEST}"),
    ("mofed", DIGEST): (OF_23, f"mofed@{DIGEST}"),
    ("ofed-driver", DIGEST): (OF_0_1, f"ofed-driver@{DIGEST}"),
    ("of-the-site", "1"): (OF_0_1, "of-the-site-1:amd64-ubuntu24.04-kver6.8.0-45-generic"),
    ("of-the-site", "25.10-1.2.3.4-0"): (OF_26, "of-the-site:25.10-1.2.3.4-0-ubuntu24.04-amd64"),
}


@pytest.mark.parametrize(("given", "meant"), NAMES.items())
def test_an_image_is_called_as_its_release_calls_it(given, meant):
    contract, name = meant
    assert contract_of(image(*given)) is contract
    assert driver_image(PolicyDriver(image(*given)), GROUP) == f"{REPOSITORY}/{name}"


@pytest.mark.parametrize(
    ("group", "tag"),
    [
        (GROUP, "doca2.9.1-24.10-1.1.4.0-0-6.8.0-45-generic-ubuntu24.04-amd64"),
        (REDHAT, "doca2.9.1-24.10-1.1.4.0-0-5.14.0-427.22.1.el9_4.aarch64-rhcos4.16-arm64"),
    ],
)
def test_an_image_for_one_kernel_has_it_in_its_tag(group, tag):
    """As the README of Mellanox/doca-driver-build (445df1e) asks for."""
    driver = PolicyDriver(image("doca-driver", "doca2.9.1-24.10-1.1.4.0-0"), precompiled=True)
    assert driver_image(driver, group) == f"{REPOSITORY}/doca-driver:{tag}"
    assert TAG.fullmatch(tag)


@pytest.mark.parametrize("given", NAMES)
def test_a_release_without_such_images_takes_its_usual_one(given):
    contract, name = NAMES[given]
    driver = PolicyDriver(image(*given), precompiled=True)
    usual = driver_image(driver, GROUP) == f"{REPOSITORY}/{name}"
    assert usual is (contract is not OF_26 or given[1] == DIGEST)


def made(name, version, **more):
    policy = ClusterPolicy("a", "b", "c", driver=PolicyDriver(image(name, version), **more))
    (document,) = driver_objects(policy, [GROUP]).daemon_sets
    return document["spec"]["template"]


def container(name, version, **more):
    (only,) = made(name, version, **more)["spec"]["containers"]
    return only


OF_TODAY = ("doca-driver", "doca3.5.0-26.07-0.7.0.0-0")


def test_a_driver_of_today_has_the_folders_of_its_release():
    """manifests/state-ofed-driver/0050_ofed-driver-ds.yaml of v26.7.0-rc.2."""
    hosts = {one["name"]: one["hostPath"] for one in made(*OF_TODAY)["spec"]["volumes"]}
    assert {
        mount["mountPath"]: (
            hosts[mount["name"]]["path"],
            mount.get("mountPropagation", ""),
            mount.get("readOnly", False),
        )
        for mount in container(*OF_TODAY)["volumeMounts"]
    } == {
        "/run/mellanox/drivers": ("/run/mellanox/drivers", "Bidirectional", False),
        "/etc/network": ("/etc/network", "", False),
        "/host/etc": ("/etc", "", False),
        "/host/usr": ("/usr", "", False),
        "/host/lib/udev": ("/lib/udev", "", False),
        "/run/udev": ("/run/udev", "", True),
        "/host/lib/modules": ("/lib/modules", "", False),
        "/mnt/drivers-inventory": ("/var/opt/mofed-container/inventory", "", False),
        "/etc/modprobe.d/ib_core.conf": ("/etc/modprobe.d/ib_core.conf", "", False),
        "/dev/infiniband": ("/dev/infiniband", "", False),
    }
    assert hosts["host-ib-core"]["type"] == "FileOrCreate"


@pytest.mark.parametrize(
    ("given", "ready"),
    [
        (("ofed-driver", "5.0-2.1.8.0"), "/.driver-ready"),
        (("mofed", "23.10-0.5.5.0"), "/.driver-ready"),
        (OF_TODAY, "/run/mellanox/drivers/.driver-ready"),
    ],
)
def test_the_start_is_over_when_the_file_of_the_release_is_there(given, ready):
    """The last is DRIVER_READY_FILE of entrypoint.sh, Mellanox/doca-driver-build@445df1e."""
    assert container(*given)["startupProbe"]["exec"]["command"] == ["sh", "-c", f"ls {ready}"]


def test_the_environment_is_that_of_the_release_unless_the_policy_has_another():
    def env(*own):
        made_of = container(*OF_TODAY, env=own)["env"]
        assert len({entry["name"] for entry in made_of}) == len(made_of)
        return {entry["name"]: entry["value"] for entry in made_of}

    assert env() == {
        "RESTORE_DRIVER_ON_POD_TERMINATION": "false",
        "CREATE_IFNAMES_UDEV": "true",
        "NVIDIA_NIC_DRIVERS_INVENTORY_PATH": "/mnt/drivers-inventory",
    }
    assert env({"name": "CREATE_IFNAMES_UDEV", "value": "false"})["CREATE_IFNAMES_UDEV"] == "false"


def test_the_vendor_s_own_drivers_keep_off_a_node_with_one():
    """By an anti-affinity to this label; the selector of the DaemonSet stays as it was."""
    assert made(*OF_TODAY)["metadata"]["labels"]["nvidia.com/ofed-driver"] == ""
    assert "nvidia.com/ofed-driver" not in made("ofed-driver", "5")["metadata"]["labels"]
    policy = ClusterPolicy("a", "b", "c", driver=PolicyDriver(image(*OF_TODAY)))
    (document,) = driver_objects(policy, [GROUP]).daemon_sets
    assert set(document["spec"]["selector"]["matchLabels"]) == {"kube-rdma.io/component", "name"}


def test_probes_of_a_policy_change_what_they_name_and_nothing_else():
    own = {"startupProbe": {"failureThreshold": 360}, "livenessProbe": {"periodSeconds": 60}}
    usual, changed = container(*OF_TODAY), container(*OF_TODAY, probes=own)
    assert changed["startupProbe"] == usual["startupProbe"] | {"failureThreshold": 360}
    assert changed["livenessProbe"] == usual["livenessProbe"] | {"periodSeconds": 60}
    assert changed["readinessProbe"] == usual["readinessProbe"]


def test_resources_of_a_policy_are_the_container_s():
    own = {"requests": {"cpu": "250m"}}
    assert container(*OF_TODAY, resources=own)["resources"] == own
    assert "resources" not in container(*OF_TODAY)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda row: row.releases)
def test_each_volume_of_a_contract_has_a_name_and_a_place_of_its_own(contract):
    for part in ("name", "host", "mount"):
        values = [getattr(folder, part) for folder in contract.folders]
        assert len(set(values)) == len(values)


NODE = placement.policy_node(
    "a",
    {
        placement.CARDS_LABEL: "true",
        placement.ARCHITECTURE_LABEL: "amd64",
        placement.DISTRIBUTION_LABEL: "rhcos",
        placement.RELEASE_LABEL: "4.16",
        placement.KERNEL_LABEL: "5.14.0",
    },
)


@pytest.mark.parametrize(
    ("given", "more", "distribution", "is_told"),
    [
        (OF_TODAY, {}, "openshift", True),
        (OF_TODAY, {"precompiled": True}, "openshift", False),
        (("doca-driver", DIGEST), {}, "openshift", False),
        (("ofed-driver", "5"), {}, "openshift", False),
        (OF_TODAY, {}, "kubernetes", False),
    ],
)
def test_a_driver_that_nothing_compiles_is_told_while_it_is_not_ready(
    given, more, distribution, is_told
):
    policy = ClusterPolicy("a", "b", "c", driver=PolicyDriver(image(*given), **more))
    values = {"distribution": distribution}
    driver = components(policy, [NODE], described("workloads"), values)[0]
    (document,) = driver.objects.daemon_sets
    name = document["metadata"]["name"]
    waits = judged(driver, {name: DaemonSetProgress(desired=1)})
    assert ("set ofedDriver.forcePrecompiled" in waits.message) is is_told
    assert waits.reason == "PodsNotReady"
    assert "not looked at by its controller yet" in judged(driver, {}).message
    ready = {name: DaemonSetProgress(desired=1, available=1)}
    assert judged(driver, ready).message == ""
    assert judged(replace(driver, problem="node b has no label"), ready).reason == "LabelsMissing"


# Which resources count as RDMA cards where no report says so.

HARMLESS = [
    "cpu",
    "memory",
    "hugepages-2Mi",
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "vke.volcengine.com/mgpu-core",
    "aliyun.com/gpu-mem",
    "devices.kubevirt.io/kvm",
    "google.com/tpu",
]
CARDS = [
    "rdma/hca",
    "nvidia.com/hostdev",
    "nvidia.com/gpurdma",
    "openshift.io/mlxnics",
    "intel.com/sriov_rdma",
    "vke.volcengine.com/rdma",
    "vpc.amazonaws.com/efa",
    "devices.kubevirt.io/mlx",
    "resource.k8s.io/claim",
]


@pytest.mark.parametrize("resource", HARMLESS)
def test_what_is_known_to_be_no_card_holds_none(resource):
    assert not is_share(resource, ())
    assert is_share(resource, (resource,))  # but where an agent offers it


@pytest.mark.parametrize("resource", CARDS)
def test_cards_of_any_plugin_count(resource):
    assert is_share(resource, ())


@given(st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,9}){0,2}/[a-z]{1,9}", fullmatch=True))
def test_an_unknown_resource_counts(resource):
    assert is_share(resource, ()) or resource.startswith(
        ("nvidia", "amd", "google", "aliyun", "kub")
    )
