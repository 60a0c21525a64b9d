"""Which DaemonSets look like a device plugin for RDMA cards; test_plan has what is made of them."""

import pytest

from kube_rdma.migrate.rules.starts import serves, serves_cards
from kube_rdma.model.migrate import PluginDaemonSet
from tests.kit import device_plugins as kit


def plugin(document):
    metadata = document["metadata"]
    return PluginDaemonSet(metadata["namespace"], metadata["name"], document["spec"])


@pytest.mark.parametrize(
    "document",
    [
        *(kit.shared(), kit.scc(), kit.ack(), kit.vke(), kit.nvidia()),
        kit.daemon_set("a", "sriovdp", {}, image="ghcr.io/x/sriov-network-device-plugin:v3"),
        kit.daemon_set("a", "plugin", {}, image="public.ecr.aws/eks/aws-efa-k8s-device-plugin"),
    ],
)
def test_plugins_for_cards_are_recognized_ready_or_not(document):
    assert serves_cards(plugin(document))


def test_a_plugin_for_gpus_is_none_for_cards():
    gpus = plugin(kit.daemon_set("a", "nvidia-device-plugin", {}, image="nvcr.io/nvidia/k8s"))
    assert serves(gpus)
    assert not serves_cards(gpus)


def test_a_name_alone_makes_no_plugin():
    document = kit.shared()
    del document["spec"]["template"]["spec"]["volumes"]
    assert not serves_cards(plugin(document))
