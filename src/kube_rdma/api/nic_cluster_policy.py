"""The object ``kind: NicClusterPolicy`` (mellanox.com/v1alpha1), as NVIDIA's operator has it.

Both spellings are read: those of 0.1.0, which seed S3 shows, and those of later releases. What a
later release can say and kube-rdma does not do is named in the policy's notes, never dropped; what
would narrow what is done to nodes is done (api/nic_cluster_policy_driver).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import ConfigDict, Field

from kube_rdma.api import config
from kube_rdma.api.dialect import Many, Typed
from kube_rdma.api.document import Document, Path
from kube_rdma.api.faults import validate
from kube_rdma.api.nic_cluster_policy_driver import (
    DriverSection,
    ImageSection,
    OpenSection,
    PolicyAffinity,
    Repository,
    Version,
    affinity,
    driver,
    driver_notes,
    image_of,
    note,
    upgrades,
)
from kube_rdma.api.nic_cluster_policy_status import NicClusterPolicyStatus
from kube_rdma.api.object_document import of_json
from kube_rdma.model.cluster_policy import (
    ClusterPolicy,
    ComponentImage,
    DevicePluginSection,
    PeerDriverSection,
    PolicyNote,
)
from kube_rdma.model.errors import Refused

_PLUGIN_SPELLINGS = ("devicePlugin", "rdmaSharedDevicePlugin")


class PluginSection(ImageSection):
    """The shared device plugin with its configuration."""

    config: str | None = Field(
        None,
        description="The device plugin's configuration as JSON or YAML, in any dialect of "
        "`kube-rdma config check`.",
    )


class PeerSection(ImageSection):
    """The peer-memory driver."""

    gpu_driver_source_path: str | None = Field(None, examples=["/run/nvidia/driver"])


class SecondaryNetworkSection(OpenSection):
    """What puts networks into pods, as later releases have it."""

    cni_plugins: ImageSection | None = Field(
        None,
        description="The device plugin's own image, which is kube-rdma's then: it also puts "
        "networks into pods. Another image has no effect.",
    )


class GlobalSection(OpenSection):
    """What sections leave out."""

    repository: Repository | None = None
    version: Version | None = None
    image_pull_secrets: Many[str] = ()


class NicClusterPolicySpec(OpenSection):
    """What runs on the nodes with NVIDIA's cards; a section that is missing is not deployed."""

    ofed_driver: DriverSection | None = None
    device_plugin: PluginSection | None = None
    rdma_shared_device_plugin: PluginSection | None = Field(
        None, description="The later spelling of devicePlugin."
    )
    nv_peer_driver: PeerSection | None = None
    secondary_network: SecondaryNetworkSection | None = None
    node_affinity: PolicyAffinity | None = None
    global_: GlobalSection = Field(default_factory=GlobalSection, alias="global")
    tolerations: Many[dict[str, Any]] = ()


def load(data: bytes, source: str) -> ClusterPolicy:
    """What the JSON of a spec means, without name and uid; raise Refused with all its faults."""
    return of_spec(of_json(data, source, ("spec",)))


def of_spec(document: Document) -> ClusterPolicy:
    """The same of a document whose value is the spec."""
    spec = validate(NicClusterPolicySpec, document)
    spelling = _PLUGIN_SPELLINGS[spec.device_plugin is None]
    plugin = spec.device_plugin or spec.rdma_shared_device_plugin
    faults = list(_both_spellings(spec, document))
    sections = {
        "ofedDriver": spec.ofed_driver,
        spelling: plugin,
        "nvPeerDriver": spec.nv_peer_driver,
    }
    for field, section in sections.items():
        for missing in _unsaid(section, spec.global_):
            remedy = f"Add it here, or spec.global.{missing}"
            faults.append(
                Refused(
                    "the field is missing",
                    remedy=remedy,
                    where=document.where((field, missing)),
                )
            )
    if plugin:
        faults += _config_faults(plugin.config or "", document.where((spelling, "config")))
    if faults:
        raise Refused.all(faults)
    return _policy(spec)


def _policy(spec: NicClusterPolicySpec) -> ClusterPolicy:
    """What a spec without faults means."""
    common, ofed, peer = spec.global_, spec.ofed_driver, spec.nv_peer_driver
    plugin = spec.device_plugin or spec.rdma_shared_device_plugin
    networks = _networks(spec, plugin)
    secrets = [*common.image_pull_secrets]
    for section in (ofed, plugin, peer):
        secrets += section.image_pull_secrets if section else ()
    return ClusterPolicy(
        name="",
        namespace="",
        uid="",
        driver=driver(ofed, _image(ofed, common)) if ofed else None,
        device_plugin=DevicePluginSection(
            _image(plugin, common),
            plugin.config or "",
            networks is True,
            tuple(pool.resource for pool in config.parse((plugin.config or "").encode(), "").pools),
        )
        if plugin
        else None,
        peer_driver=PeerDriverSection(_image(peer, common), peer.gpu_driver_source_path or "")
        if peer
        else None,
        upgrades=upgrades(ofed.upgrade_policy if ofed else None),
        pull_secrets=tuple(dict.fromkeys(secrets)),
        tolerations=spec.tolerations,
        affinity=affinity(spec.node_affinity),
        notes=tuple(_notes(spec, networks)),
    )


def _notes(spec: NicClusterPolicySpec, networks: bool | None) -> Iterator[PolicyNote]:
    """What a policy says and kube-rdma does not do."""
    yield from (note(path, "has no effect") for path in _unknown(spec, ()))
    if networks is False:
        yield note(
            ("secondaryNetwork", "cniPlugins"),
            "has no effect: only the image that rdmaSharedDevicePlugin names serves networks",
        )
    if spec.ofed_driver:
        yield from driver_notes(spec.ofed_driver, _image(spec.ofed_driver, spec.global_))


def _networks(spec: NicClusterPolicySpec, plugin: PluginSection | None) -> bool | None:
    """Whether the device plugin's image puts networks into pods; None: nobody asks for it."""
    section = spec.secondary_network and spec.secondary_network.cni_plugins
    if not section:
        return None
    return plugin is not None and _image(section, spec.global_) == _image(plugin, spec.global_)


def _both_spellings(spec: NicClusterPolicySpec, document: Document) -> Iterator[Refused]:
    if spec.device_plugin and spec.rdma_shared_device_plugin:
        first, second = _PLUGIN_SPELLINGS
        yield Refused(
            f"{first} and {second} are two spellings of one section",
            remedy="Keep one of them",
            where=document.where((second,)),
        )


def _unsaid(section: ImageSection | None, common: GlobalSection) -> Iterator[str]:
    """The parts of an image that nothing says."""
    for part in ("repository", "version"):
        if section and not (getattr(section, part) or getattr(common, part)):
            yield part


def _image(section: ImageSection, common: GlobalSection) -> ComponentImage:
    return image_of(section, common.repository, common.version)


def _config_faults(text: str, where: str) -> Iterator[Refused]:
    """What is wrong in the configuration inside of the object, by its own lines and fields."""
    if not text.strip():
        yield Refused(
            "the device plugin has no configuration",
            remedy='Write one, such as {"mode": "hca"}',
            where=where,
        )
        return
    try:
        config.parse(text.encode(), where)
    except Refused as fault:
        yield fault


def _unknown(part: Typed, path: Path) -> Iterator[Path]:
    """The fields of an object, and of those in it, that no model has."""
    for field in part.model_extra or {}:
        yield (*path, field)
    for attribute, info in type(part).model_fields.items():
        value = getattr(part, attribute)
        if isinstance(value, Typed):
            yield from _unknown(value, (*path, info.alias or attribute))


class PolicyMetadata(Typed):
    """Its name; the API server checks the rest."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(examples=["example-nicclusterpolicy"])


class NicClusterPolicyObject(Typed):
    """The whole object."""

    api_version: Literal["mellanox.com/v1alpha1"]
    kind: Literal["NicClusterPolicy"]
    metadata: PolicyMetadata
    spec: NicClusterPolicySpec
    status: NicClusterPolicyStatus | None = None
