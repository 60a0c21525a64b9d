"""The two ways to be known to a kubelet, and a server of a resource for either."""

from __future__ import annotations

from enum import StrEnum

from kube_base.errors import Refused
from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin
from kube_rdma.adapters.kubelet.folders import Folders
from kube_rdma.adapters.kubelet.plugin_watcher import WatchedPlugin
from kube_rdma.adapters.kubelet.resource_server import Served
from kube_rdma.adapters.kubelet.service import Answers
from kube_rdma.model.pools.pool import Offer


class Registry(StrEnum):
    """The folder of the kubelet that the plugin's socket lies in.

    DEVICE_PLUGINS: the agent calls the kubelet; every version has it. PLUGINS_REGISTRY: the kubelet
    finds the agent; Kubernetes 1.12 and later.
    """

    DEVICE_PLUGINS = "device-plugins"
    PLUGINS_REGISTRY = "plugins_registry"


def serve(registry: Registry, folders: Folders, offer: Offer, answers: Answers) -> Served:
    """A server of `offer`, not yet running; raise Refused when the folder is not there."""
    if registry is Registry.DEVICE_PLUGINS:
        return DevicePlugin(folders.device_plugins, offer, answers)
    if folders.plugins_registry is None:
        raise Refused(
            "the kubelet's plugins_registry is not there",
            remedy=(
                "Mount the host's folder of that name (hostPath), or register in device-plugins"
            ),
        )
    return WatchedPlugin(folders.plugins_registry, offer, answers)
