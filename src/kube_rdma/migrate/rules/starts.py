"""Recognizes the plugin that serves a cluster's nodes, by its DaemonSet's name, mounts and owner.

It is the first half of `kube-rdma migrate plan`; migrate/rules/plan is the second. Names are
those of the manifests that their owners publish: k8s-rdma-shared-dev-plugin (deployment/k8s/base),
k8s-rdma-sriov-dev-plugin (example/hca), network-operator (manifests/state-rdma-*), the documents of
ACK and VKE. What is not recognized is refused with what was seen, for a wrong way does harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kube_base.errors import Refused
from kube_rdma.lib.phrases import listed
from kube_rdma.model import migrate as model

SHARED_FOLDER, SCC_FOLDER = "/k8s-rdma-shared-dev-plugin", "/k8s-rdma-sriov-dev-plugin"
VKE_RESOURCE, ACK_RESOURCE = "vke.volcengine.com/rdma", "rdma/hca"
_ACK, _VKE = "ack-rdma-dp-ds", "rdma-device-plugin"
_WATCHED = "device-plugins"  # the kubelet's folder; network operator 0.1.0 mounts the one above
_OF_CARDS = ("rdma", "sriov", "efa")  # in names of the plugins of NVIDIA, ACK, VKE, AWS
_PAGE = "docs/migrate.md lists what it knows"


def serves(plugin: model.PluginDaemonSet) -> bool:
    """Return whether a DaemonSet looks like a device plugin, of RDMA cards or of anything else."""
    paths = [str((one.get("hostPath") or {}).get("path", "")) for one in _volumes(plugin)]
    if any(path.rstrip("/").endswith(_WATCHED) for path in paths):
        return True
    return "rdma" in plugin.name and any(path.rstrip("/").endswith("/kubelet") for path in paths)


def serves_cards(plugin: model.PluginDaemonSet) -> bool:
    """Return whether a DaemonSet looks like a device plugin for RDMA cards, by its name or image.

    A DaemonSet without pods counts too, for it runs as soon as a node matches.
    """
    return serves(plugin) and any(word in plugin.name + plugin.image for word in _OF_CARDS)


def config_map(plugin: model.PluginDaemonSet) -> str:
    """Return the namespace/name of the ConfigMap that a plugin reads, "" where none is mounted."""
    folders = (SHARED_FOLDER, SCC_FOLDER)
    volumes = {path: name for name, path in _mounts(plugin)}
    mounted = next((volumes[folder] for folder in folders if folder in volumes), None)
    volume = next((one for one in _volumes(plugin) if one.get("name") == mounted), {})
    name = (volume.get("configMap") or {}).get("name")
    return f"{plugin.namespace}/{name}" if name else ""


def source(
    view: model.MigrationView, options: model.MigrationOptions
) -> model.MigrationSource | None:
    """Return the plugin that nodes are moved away from.

    Return None where kube-rdma alone serves cards, or no plugin is there. A DaemonSet without a
    ready pod serves nobody, and its author need not be an administrator: it counts only if the
    options name it. Raise Refused for several plugins at once, for an unknown one, and for one
    whose ConfigMap is missing. Raise Refused too where only DaemonSets without a ready pod are, and
    the options name none.
    """
    others = [one for one in view.plugins if not one.is_ours and serves(one)]
    waiting = idle(view)
    if waiting and not options.daemonset:
        others = [one for one in others if one.ready]
        if not others and not any(one.is_ours for one in view.plugins):
            raise Refused(
                f"no pod of {_listed(waiting)} is ready, so it serves no node",
                remedy="If it is the plugin to leave, write --daemonset NAMESPACE/NAME",
            )
    if options.daemonset:
        others = [one for one in others if one.title == options.daemonset]
        if not others:
            seen = _listed(view.plugins)
            raise Refused(
                f"there is no device plugin {options.daemonset}", remedy=f"Seen were {seen}"
            )
    recognized = [(one, start) for one in others if (start := _start(one, view))]
    if len(recognized) > 1:
        names = listed([one.title for one, _ in recognized])
        raise Refused(
            f"{len(recognized)} device plugins serve RDMA cards: {names}",
            remedy="Take one at a time: write --daemonset NAMESPACE/NAME",
        )
    if recognized:
        plugin, start = recognized[0]
        return model.MigrationSource(
            start, plugin, _policy(plugin, view), _config(plugin, start, view)
        )
    strange = [one for one in others if options.daemonset or "rdma" in one.name + one.image]
    if strange or (others and not any(one.is_ours for one in view.plugins)):
        raise Refused(
            f"no device plugin that kube-rdma knows was seen, but {_listed(strange or others)}",
            remedy=f"Nothing was changed; {_PAGE}",
        )
    return None


def idle(view: model.MigrationView) -> list[model.PluginDaemonSet]:
    """Return foreign DaemonSets that look like a device plugin and have no ready pod."""
    return [one for one in view.plugins if not (one.is_ours or one.ready) and serves(one)]


def _start(plugin: model.PluginDaemonSet, view: model.MigrationView) -> model.StartingPoint | None:
    """Return which known plugin a DaemonSet runs, None for an unknown one."""
    mounts = {path for _, path in _mounts(plugin)}
    if plugin.owner:
        policy = _policy(plugin, view)
        if policy is None or SHARED_FOLDER not in mounts:
            return None
        return model.StartingPoint.NVIDIA_2020 if policy.namespace else model.StartingPoint.NVIDIA
    if plugin.name == _ACK:
        return model.StartingPoint.ACK
    if SCC_FOLDER in mounts:
        return model.StartingPoint.SCC
    if SHARED_FOLDER in mounts:
        return model.StartingPoint.SHARED
    offered = any(VKE_RESOURCE in node.offered for node in view.nodes)
    return model.StartingPoint.VKE if offered and plugin.name.startswith(_VKE) else None


def _policy(plugin: model.PluginDaemonSet, view: model.MigrationView) -> model.VendorPolicy | None:
    """Return the policy that owns a plugin's DaemonSet, None without one."""
    mine = (one for one in view.policies if (one.kind, one.name) == plugin.owner)
    return next((one for one in mine if one.namespace in ("", plugin.namespace)), None)


def _config(
    plugin: model.PluginDaemonSet, start: model.StartingPoint, view: model.MigrationView
) -> model.PluginConfig | None:
    """Return a plugin's configuration; None for ACK's and VKE's, which only their vendors know.

    Raise Refused where its ConfigMap, or config.json in it, is missing.
    """
    if start in (model.StartingPoint.ACK, model.StartingPoint.VKE):
        return None
    name = config_map(plugin)
    if name not in view.configs:
        raise Refused(
            f"DaemonSet {plugin.title} reads ConfigMap {name or 'of no name'}, which is not there",
            remedy="Make it, with the key config.json",
        )
    return view.configs[name]


def _listed(plugins: Sequence[model.PluginDaemonSet]) -> str:
    names = []
    for plugin in plugins:
        owner = f", owned by {' '.join(plugin.owner)}" if plugin.owner else ""
        names.append(f"DaemonSet {plugin.title} (image {plugin.image or 'of no name'}{owner})")
    return listed(names) or "none"


def _volumes(plugin: model.PluginDaemonSet) -> list[dict[str, Any]]:
    return list(plugin.pod.get("volumes") or ())


def _mounts(plugin: model.PluginDaemonSet) -> Iterator[tuple[str, str]]:
    """Yield volume name and path of each mount of a plugin's containers."""
    for container in plugin.pod.get("containers") or ():
        for mount in container.get("volumeMounts") or ():
            yield mount.get("name", ""), str(mount.get("mountPath", "")).rstrip("/")
