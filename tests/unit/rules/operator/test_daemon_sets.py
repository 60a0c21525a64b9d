"""What DaemonSets of a policy are made of, beside what the operator's own tests look at."""

import pytest

from kube_rdma.model.cluster_policy import (
    ClusterPolicy,
    ComponentImage,
    DevicePluginSection,
    PeerDriverSection,
)
from kube_rdma.rules.install.fill import filled
from kube_rdma.rules.install.presets import merged
from kube_rdma.rules.install.workloads import workloads
from kube_rdma.rules.operator.daemon_sets import driver_objects, peer_objects, plugin_objects
from kube_rdma.rules.operator.node_groups import NodeGroup

IMAGE = ComponentImage("registry.example.com/rdma", "kube-rdma", "1.0")
GROUP = NodeGroup("amd64", "debian", "12", "7.3.4_deb13-amd64")


def policy(*, networks=False):
    plugin = DevicePluginSection(IMAGE, "{}", networks)
    peer = PeerDriverSection(IMAGE, "/run/nvidia/driver")
    return ClusterPolicy("a", "b", "c", driver=IMAGE, device_plugin=plugin, peer_driver=peer)


def pod(made):
    return made.daemon_sets[0]["spec"]["template"]["spec"]


def test_with_networks_the_device_plugin_is_the_agent_of_the_preset():
    """With its mounts, rights and arguments, and with the policy's image and configuration."""
    agent = pod(plugin_objects(policy(networks=True)))
    objects = filled(workloads(), merged({"preset": "nvidia"}))
    (preset,) = (one for one in objects if one["kind"] == "DaemonSet")
    wanted = preset["spec"]["template"]["spec"]
    for field in ("volumes", "hostPID", "serviceAccountName", "hostNetwork"):
        assert agent[field] == wanted[field]
    for field in ("args", "env", "volumeMounts", "securityContext"):
        assert agent["containers"][0][field] == wanted["containers"][0][field]
    assert agent["containers"][0]["image"] == "registry.example.com/rdma/kube-rdma:1.0"
    assert agent.get("automountServiceAccountToken", True)


def test_without_networks_it_has_no_token_and_the_original_s_mounts():
    plugin = pod(plugin_objects(policy()))
    assert plugin["automountServiceAccountToken"] is False
    mounts = {mount["mountPath"] for mount in plugin["containers"][0]["volumeMounts"]}
    assert mounts == {"/var/lib/kubelet/", "/k8s-rdma-shared-dev-plugin", "/dev/"}


@pytest.mark.parametrize("make", [driver_objects, peer_objects])
def test_a_driver_ends_by_the_upgrade_alone_and_never_by_a_late_probe(make):
    made = make(policy(), [GROUP])
    assert made.daemon_sets[0]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    (container,) = pod(made)["containers"]
    assert container["livenessProbe"]["timeoutSeconds"] > 1
    assert container["livenessProbe"]["failureThreshold"] > 1
    assert container["startupProbe"]["exec"]["command"][-1] == "ls /.driver-ready"
