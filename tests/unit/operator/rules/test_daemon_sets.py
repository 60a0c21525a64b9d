"""DaemonSets of device plugins, and whether an object still says what was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.install.installation import described
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import DISTRIBUTIONS, merged
from kube_rdma.model import operator
from kube_rdma.operator.rules.daemon_sets import DRIVER_ACCOUNT, SRIOV, holds, plugin_objects
from kube_rdma.operator.rules.driver_sets import driver_objects, peer_objects
from kube_rdma.operator.rules.placement import CARDS_LABEL, READY_LABEL, NodeGroup, policy_node
from kube_rdma.operator.rules.sync import components

IMAGE = operator.ComponentImage("registry.example.com/rdma", "kube-rdma", "1.0")
WORKLOADS = described("workloads")
GROUP = NodeGroup("amd64", "debian", "12", "7.3.4_deb13-amd64")


def policy(*, networks=False, image=IMAGE, env=(), **more):
    plugin = operator.DevicePluginSection(image, "{}", networks)
    peer = operator.PeerDriverSection(image, "/run/nvidia/driver")
    driver = operator.PolicyDriver(image, env)
    return operator.ClusterPolicy(
        "a", "b", "c", driver=driver, device_plugin=plugin, peer_driver=peer, **more
    )


def pod(made):
    return made.daemon_sets[0]["spec"]["template"]["spec"]


def test_with_networks_the_device_plugin_is_the_agent_of_the_preset():
    """With its mounts, rights and arguments, and with the policy's image and configuration."""
    agent = pod(plugin_objects(policy(networks=True), WORKLOADS))
    objects = filled(WORKLOADS, merged({"preset": "nvidia"}))
    (preset,) = (one for one in objects if one["kind"] == "DaemonSet")
    wanted = preset["spec"]["template"]["spec"]
    for field in ("volumes", "hostPID", "serviceAccountName", "hostNetwork"):
        assert agent[field] == wanted[field]
    for field in ("args", "env", "startupProbe", "volumeMounts", "securityContext"):
        assert agent["containers"][0][field] == wanted["containers"][0][field]
    assert agent["containers"][0]["image"] == "registry.example.com/rdma/kube-rdma:1.0"
    assert agent.get("automountServiceAccountToken", True)


def test_the_agent_of_a_policy_has_the_folders_of_the_operator_s_own_values():
    """Of its distribution, and those that differ from it; the image stays the policy's."""
    values = {"distribution": "rke2", "host": {"kubelet": "/kubelet"}, "image": {"tag": "other"}}
    agent = pod(plugin_objects(policy(networks=True), WORKLOADS, values=values))
    paths = {row["name"]: row["hostPath"]["path"] for row in agent["volumes"] if "hostPath" in row}
    assert paths["runtime"] == "/run/k3s/containerd"
    assert paths["device-plugins"] == "/var/lib/kubelet/device-plugins"
    assert paths["pod-resources"] == "/kubelet/pod-resources"
    assert agent["containers"][0]["image"].endswith(":1.0")
    other = pod(plugin_objects(policy(), WORKLOADS, values=values))
    assert other["volumes"][0]["hostPath"]["path"] == "/var/lib/kubelet/"


def test_the_agent_of_a_policy_serves_claims_where_its_operator_was_installed_so():
    """With the folder by which the kubelet finds it; another image's plugin knows no claims."""
    given = {"claims": {"enabled": True}}
    for values, serves in ((given, True), ({}, False)):
        agent = pod(plugin_objects(policy(networks=True), WORKLOADS, values=values))
        assert ("--claims" in agent["containers"][0]["args"]) is serves
        for rows in (agent["volumes"], agent["containers"][0]["volumeMounts"]):
            assert ("plugins-registry" in {row["name"] for row in rows}) is serves
    other = pod(plugin_objects(policy(), WORKLOADS, values=given))
    assert other == pod(plugin_objects(policy(), WORKLOADS))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_privileged_pods_have_an_account_where_not_everyone_s_may(distribution):
    values = {"distribution": distribution}
    made = (
        plugin_objects(policy(), WORKLOADS, values=values),
        driver_objects(policy(), [GROUP], values),
        peer_objects(policy(), [GROUP], values),
    )
    accounts = {pod(each).get("serviceAccountName") for each in made}
    assert accounts == {DRIVER_ACCOUNT if distribution == "openshift" else None}


def test_without_networks_it_has_no_token_and_the_original_s_mounts():
    plugin = pod(plugin_objects(policy(), WORKLOADS))
    assert plugin["automountServiceAccountToken"] is False
    mounts = {mount["mountPath"] for mount in plugin["containers"][0]["volumeMounts"]}
    assert mounts == {"/var/lib/kubelet/", "/k8s-rdma-shared-dev-plugin", "/dev/"}
    assert "startupProbe" not in plugin["containers"][0], "another vendor's writes no file"


@pytest.mark.parametrize("make", [driver_objects, peer_objects])
def test_a_driver_ends_by_the_upgrade_alone_and_never_by_a_late_probe(make):
    made = make(policy(), [GROUP])
    assert made.daemon_sets[0]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    (container,) = pod(made)["containers"]
    assert container["livenessProbe"]["timeoutSeconds"] > 1
    assert container["livenessProbe"]["failureThreshold"] > 1
    assert container["startupProbe"]["exec"]["command"][-1] == "ls /.driver-ready"
    assert pod(made)["terminationGracePeriodSeconds"] == 300
    assert made.daemon_sets[0]["metadata"]["ownerReferences"] == []
    (key,) = pod(made)["nodeSelector"]
    assert key.startswith("kube-rdma.io/")  # nobody else writes it


def folders(spec):
    """The host's folders by where the container has them."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    return {
        mount["mountPath"]: (paths[mount["name"]], mount.get("mountPropagation", ""))
        for mount in spec["containers"][0]["volumeMounts"]
    }


def test_no_taint_keeps_a_policy_s_pods_from_a_node_or_ends_them():
    """With NoExecute on a running node its driver would go under the pods that hold shares."""
    own = {"key": "gpu", "operator": "Exists"}
    wanted = policy(tolerations=(own,))
    for made in (
        plugin_objects(wanted, WORKLOADS),
        driver_objects(wanted, (GROUP,)),
        peer_objects(wanted, (GROUP,)),
    ):
        assert pod(made)["tolerations"] == [{"operator": "Exists"}, own]


def test_the_folders_are_those_of_0_1_0():
    """Its manifests of stage-ofed-driver and stage-nv-peer-mem-driver, volumeMounts and volumes."""
    assert folders(pod(driver_objects(policy(), [GROUP]))) == {
        "/run/mellanox/drivers": ("/run/mellanox/drivers", "Bidirectional"),
        "/etc/network": ("/etc/network", ""),
    }
    assert folders(pod(peer_objects(policy(), [GROUP]))) == {
        "/run/mellanox/drivers": ("/run/mellanox/drivers", "HostToContainer"),
        "/run/nvidia/drivers": ("/run/nvidia/driver", "HostToContainer"),
    }


@pytest.mark.parametrize("objects", [driver_objects, peer_objects])
def test_a_driver_has_the_selinux_level_of_0_1_0(objects):
    (container,) = pod(objects(policy(), [GROUP]))["containers"]
    level = {"level": "s0"}
    assert container["securityContext"] == {"privileged": True, "seLinuxOptions": level}


def test_images_that_can_leave_the_modules_loaded_are_told_to():
    """Unless the policy says otherwise itself."""
    name = "RESTORE_DRIVER_ON_POD_TERMINATION"
    (container,) = pod(driver_objects(policy(), [GROUP]))["containers"]
    assert container["env"] == [{"name": name, "value": "false"}]
    own = ({"name": name, "value": "true"},)
    (container,) = pod(driver_objects(policy(env=own), [GROUP]))["containers"]
    assert container["env"] == list(own)


def test_a_digest_names_the_image_of_all_kernels():
    digest = f"sha256:{'0' * 64}"
    by_digest = operator.ComponentImage("registry.example.com/rdma", "kube-rdma", digest)
    given = policy(image=by_digest)
    for made in (
        driver_objects(given, [GROUP]),
        peer_objects(given, [GROUP]),
        plugin_objects(given, WORKLOADS),
        plugin_objects(policy(image=by_digest, networks=True), WORKLOADS),
    ):
        (container,) = pod(made)["containers"]
        assert container["image"] == f"registry.example.com/rdma/kube-rdma@{digest}"


def test_the_device_plugin_goes_behind_its_node_s_driver_and_where_the_policy_lets_it():
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    plugin = pod(plugin_objects(policy(affinity=affinity), WORKLOADS))
    assert plugin["nodeSelector"]["kube-rdma.io/driver-ready"] == "true"
    assert plugin["affinity"] == {"nodeAffinity": affinity}


def test_nodes_that_are_away_come_on_top_of_a_roll_out():
    """Of those alone that have a plugin: others it does not count."""
    labels = {"kubernetes.io/arch": "amd64", CARDS_LABEL: "true", READY_LABEL: "true"}
    has = policy_node("a", labels)
    lacks = policy_node("b", labels | {CARDS_LABEL: "false"})
    early = replace(policy_node("c", {CARDS_LABEL: "true"}), away=True)

    def at_a_time(*nodes):
        (_, plugin, sriov, _) = components(policy(), nodes, WORKLOADS)
        assert not sriov.objects.daemon_sets
        (made,) = plugin.objects.daemon_sets
        return made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"]

    assert at_a_time(has, lacks, early) == 1
    assert at_a_time(replace(has, away=True), replace(lacks, away=True), early) == 2


def functions(config="{}", **more):
    section = operator.DevicePluginSection(IMAGE, config, **more)
    return operator.ClusterPolicy(
        "a", "b", "c", driver=operator.PolicyDriver(IMAGE), sriov_plugin=section
    )


def test_the_plugin_of_functions_has_names_and_folders_of_the_original():
    """manifests/state-sriov-device-plugin of Mellanox/network-operator v26.7.0-rc.2."""
    made = plugin_objects(functions(), WORKLOADS, names=SRIOV)
    (daemon_set,) = made.daemon_sets
    assert daemon_set["metadata"]["name"] == "network-operator-sriov-device-plugin"
    assert made.config_map["metadata"]["name"] == "network-operator-sriovdp-config"
    spec = pod(made)
    assert spec["nodeSelector"][READY_LABEL] == "true"
    (container,) = spec["containers"]
    assert container["name"] == "kube-sriovdp"
    assert "args" not in container  # neither image needs one
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/etc/pcidp", "/var/run/k8s.cni.cncf.io/devinfo/dp", "/var/lib/kubelet/"} <= mounts
    assert {one["name"] for one in container["volumeMounts"]} == {
        one["name"] for one in spec["volumes"]
    }


def test_the_agent_of_a_list_of_functions_reads_the_config_map_of_it():
    made = plugin_objects(functions(networks=True), WORKLOADS, names=SRIOV)
    volumes = {volume["name"]: volume for volume in pod(made)["volumes"]}
    assert volumes["config"]["configMap"]["name"] == "network-operator-sriovdp-config"
    assert any("--networks" in word for word in pod(made)["containers"][0]["args"])


def test_a_config_map_of_the_administrator_is_mounted_and_never_written():
    made = plugin_objects(functions(None), WORKLOADS, names=SRIOV)
    assert made.config_map is None
    assert "annotations" not in made.daemon_sets[0]["spec"]["template"]["metadata"]
    volumes = {volume["name"]: volume for volume in pod(made)["volumes"]}
    assert volumes["config"]["configMap"]["name"] == "network-operator-sriovdp-config"


@pytest.mark.parametrize("networks", [False, True])
def test_a_plugin_has_the_resources_of_the_policy(networks):
    own = {"limits": {"memory": "1Gi"}}
    made = plugin_objects(functions(networks=networks, requirements=own), WORKLOADS, names=SRIOV)
    assert pod(made)["containers"][0]["resources"] == own


# What was written must be there; what others add is theirs.

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
documents = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def defaulted(document):
    """The document as the API server holds it: each object has one more field."""
    if isinstance(document, dict):
        return {"defaulted": 1} | {key: defaulted(value) for key, value in document.items()}
    return [defaulted(each) for each in document] if isinstance(document, list) else document


@given(documents)
def test_a_document_holds_itself_and_what_the_server_adds_is_no_difference(document):
    assert holds(document, document)
    assert holds(defaulted(document), document)


def test_a_field_that_is_another_or_gone_and_a_list_that_is_longer_are_differences():
    wanted = {"image": "a", "args": [{"name": "x"}]}
    assert not holds({"image": "b", "args": [{"name": "x"}]}, wanted)
    assert not holds({"args": [{"name": "x"}]}, wanted)
    assert not holds({"image": "a", "args": [{"name": "x"}, {"name": "y"}]}, wanted)
    assert not holds({"image": "a", "args": "x"}, wanted)
    assert not holds(None, wanted)
