"""Decodes the object ``kind: NicClusterPolicy`` (mellanox.com/v1alpha1) of NVIDIA's operator.

The fields of 0.1.0 are read, and those of later releases. A field without a model here is refused
or named in the policy's notes, never dropped. Fields that limit what is done to nodes are carried
out (operator/documents/driver).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import Document, of_json
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.typed import Many, OfPrograms, Typed
from kube_rdma.model import kubernetes, operator
from kube_rdma.operator.documents import driver
from kube_rdma.pools.documents import config

# The status of a NicClusterPolicy: the fields and values of 0.1.0, and standard conditions.


class AppliedStateEntry(kubernetes.StatusPart):
    """The state of one part."""

    name: str
    """name is the part: state-OFED (driver), state-RDMA-device-plugin, state-SRIOV-device-plugin or
    state-NV-Peer (peer-memory driver).
    """
    state: operator.AppliedState
    """state is ready when all pods of the part run, notReady while they do not, and ignore when the
    policy does not have the part. error is not used here.
    """
    message: str = ""
    """message is what the part still lacks. Empty: nothing."""


class NicClusterPolicyStatus(kubernetes.StatusPart):
    """The state of the whole policy."""

    observed_generation: int = kubernetes.NOT_OBSERVED
    """observedGeneration is metadata.generation of the policy that this status is about. -1: no
    operator has looked at the policy.
    """
    state: Literal["notReady", "ready", "ignore", "error"] = "notReady"
    """state is ready when all parts of the policy run, and notReady while they do not. error: the
    policy or an object of it is refused, or an older policy counts. ignore: the policy asks for
    nothing that kube-rdma deploys.
    """
    reason: str = ""
    """reason is why state is not ready: the parts and what they lack, or what is wrong with the
    policy. Empty: the policy is ready.
    """
    applied_states: tuple[AppliedStateEntry, ...] = ()
    """appliedStates is a list of the parts of the policy with the state of each. Empty: state is
    error, or the policy is being deleted.
    """
    conditions: tuple[kubernetes.Condition, ...] = ()
    """conditions is a list of conditions. Ready is about the whole policy; OFEDDriverReady,
    RDMASharedDevicePluginReady, SRIOVDevicePluginReady and NVPeerDriverReady are about its parts.
    DriversCurrent says whether drivers still change, FieldsIgnored which fields have no effect.
    Stalled: only another spec, or another policy, can help.
    """


_READY_REASONS = {
    operator.AppliedState.READY: "AllComponentsReady",
    operator.AppliedState.NOT_READY: "ComponentsNotReady",
    operator.AppliedState.ERROR: "PolicyRefused",
    operator.AppliedState.IGNORE: "NothingToDeploy",
}
OWN_REASONS = frozenset(("PolicyRefused", "NothingToDeploy"))  # NVIDIA's operator has others
_CONDITIONS = {  # as later releases of the operator call them
    operator.ComponentName.DRIVER: "OFEDDriverReady",
    operator.ComponentName.DEVICE_PLUGIN: "RDMASharedDevicePluginReady",
    operator.ComponentName.SRIOV_PLUGIN: "SRIOVDevicePluginReady",
    operator.ComponentName.PEER_DRIVER: "NVPeerDriverReady",
}


class PolicyVerdict(Frozen):
    """The operator's verdict on a policy: its state as a whole, and that of each part."""

    state: operator.AppliedState
    reason: str
    parts: tuple[operator.ComponentStatus, ...] = ()
    notes: tuple[str, ...] = ()
    upgrade: operator.UpgradeState | None = None
    stalled: bool = False  # only people can help, by another spec or another policy


def policy_status(
    old: NicClusterPolicyStatus | None, generation: int, verdict: PolicyVerdict, now: str
) -> NicClusterPolicyStatus:
    """Return the status of a policy with this verdict; conditions that change get the time `now`.

    `now` is as in RFC 3339.
    """
    conditions = _conditions(old.conditions if old else (), verdict, now)
    return NicClusterPolicyStatus(
        observed_generation=generation,
        state=verdict.state.value,
        reason=verdict.reason,
        applied_states=tuple(
            AppliedStateEntry(part.component, part.state, part.message) for part in verdict.parts
        ),
        conditions=kubernetes.observed(conditions, generation),
    )


def _conditions(
    old: tuple[kubernetes.Condition, ...], verdict: PolicyVerdict, now: str
) -> Iterator[kubernetes.Condition]:
    """Yield the conditions of a policy's status, in their order.

    They are Ready, Stalled if only people can help, and one for each wanted part. DriversCurrent
    follows where there are drivers, FieldsIgnored where there are notes.
    """
    ready = verdict.state is operator.AppliedState.READY
    words = (_READY_REASONS[verdict.state], verdict.reason)
    yield kubernetes.condition(old, now, "Ready", ready, words)
    yield from kubernetes.stalled(old, now, words if verdict.stalled else None)
    for part in verdict.parts:
        if part.state is not operator.AppliedState.IGNORE:
            ready = part.state is operator.AppliedState.READY
            words = (part.reason, part.message)
            yield kubernetes.condition(old, now, _CONDITIONS[part.component], ready, words)
    if verdict.upgrade:
        words = (verdict.upgrade.reason, verdict.upgrade.message)
        yield kubernetes.condition(old, now, "DriversCurrent", verdict.upgrade.current, words)
    if verdict.notes:
        words = ("NotSupported", "; ".join(verdict.notes))
        yield kubernetes.condition(old, now, "FieldsIgnored", True, words)


_PLUGIN_SPELLINGS = ("devicePlugin", "rdmaSharedDevicePlugin")
_SRIOV = "sriovDevicePlugin"
# As 0.1.0 and later releases call the containers, to which resources are given by name.
_SHARED_CONTAINERS = ("k8s-rdma-shared-dp-ds", "rdma-shared-dp")
_SRIOV_CONTAINERS = ("kube-sriovdp",)


class PluginSection(driver.ImageSection):
    """A device plugin with its configuration."""

    config: str | None = None
    """config is the configuration of the device plugin as JSON or YAML. kube-rdma config check
    takes the same formats. Left out: the plugin reads config.json of a ConfigMap that you make:
    rdma-devices, or network-operator-sriovdp-config for sriovDevicePlugin. Example: {"mode":
    "hca"}.
    """
    container_resources: driver.Resources = ()
    """containerResources is a list of requests and limits, by the name of the container. Left out:
    none.
    """


class PeerSection(driver.ImageSection):
    """The peer-memory driver."""

    gpu_driver_source_path: str | None = Field(None, examples=["/run/nvidia/driver"])
    """gpuDriverSourcePath is the folder of the node with the GPU driver's files. The container has
    it at /run/nvidia/drivers. Left out: no folder is mounted. Example: /run/nvidia/driver.
    """


class SecondaryNetworkSection(driver.OpenSection):
    """The image that attaches networks to pods, as later releases of NVIDIA's operator have it."""

    cni_plugins: driver.ImageSection | None = None
    """cniPlugins is the image that attaches networks to pods. Name kube-rdma's image here and as
    the shared or the SR-IOV device plugin: the same pods do both. Another image has no effect. Left
    out: device plugins attach no networks.
    """


class GlobalSection(driver.OpenSection):
    """Parts of images for sections that leave them out."""

    repository: driver.Repository | None = None
    """repository is the registry and path of images for each section that names none. Left out:
    ofedDriver, device plugins and nvPeerDriver must name their own. Example: mellanox.
    """
    version: driver.Version | None = None
    """version is the version of images for each section that names none. Left out: ofedDriver,
    device plugins and nvPeerDriver must name their own. Example: 5.0-2.1.8.0.
    """
    image_pull_secrets: Many[str] = ()
    """imagePullSecrets is a list of Secrets in the operator's namespace that give access to the
    registry. All pods of the policy use them, besides those of the sections. Left out: none.
    """


class NicClusterPolicySpec(driver.OpenSection):
    """The parts on nodes with NVIDIA's cards; a section that is missing is not deployed."""

    ofed_driver: driver.DriverSection | None = None
    """ofedDriver is the driver of the cards, as a container on each node with NVIDIA cards. Left
    out: the nodes use their own driver, and drivers that the operator deployed are removed node by
    node.
    """
    device_plugin: PluginSection | None = None
    """devicePlugin is the shared device plugin, which offers the cards of a node as resources. The
    plugin starts on a node when the driver of ofedDriver is ready there, if there is one. Left out:
    none is deployed, unless rdmaSharedDevicePlugin is set.
    """
    rdma_shared_device_plugin: PluginSection | None = None
    """rdmaSharedDevicePlugin is the name of devicePlugin in later releases of NVIDIA's operator.
    Set one of the two. Left out: devicePlugin counts.
    """
    sriov_device_plugin: PluginSection | None = None
    """sriovDevicePlugin is the device plugin of virtual functions. Its configuration is a
    resourceList, as of the SR-IOV network device plugin; kube-rdma's image reads such a list too.
    The plugin starts on a node when the driver of ofedDriver is ready there, if there is one. Left
    out: none is deployed.
    """
    nv_peer_driver: PeerSection | None = None
    """nvPeerDriver is the peer-memory driver, by which cards reach the memory of GPUs. This driver
    runs on nodes that have NVIDIA cards and NVIDIA GPUs. Left out: none is deployed, and one that
    the operator deployed is removed.
    """
    secondary_network: SecondaryNetworkSection | None = None
    """secondaryNetwork is what attaches networks to pods. Only cniPlugins in it has an effect. Left
    out: the device plugin attaches no networks.
    """
    node_affinity: driver.PolicyAffinity | None = None
    """nodeAffinity limits all parts of the policy to some nodes, written as in a pod. Preferences
    have no effect. Left out: all nodes with NVIDIA cards.
    """
    global_: GlobalSection = Field(default_factory=GlobalSection, alias="global")
    """global is the repository, version and imagePullSecrets for sections that leave them out. Left
    out: each section names its own.
    """
    tolerations: Many[dict[str, Any]] = ()
    """tolerations is a list of tolerations for all pods of the policy, written as in a pod. These
    pods tolerate every taint anyway; limit their nodes by nodeAffinity. Left out: no others.
    """


def load(data: bytes, source: str) -> operator.ClusterPolicy:
    """Return the policy of a spec in JSON, without name and uid; raise Refused with all faults."""
    return of_spec(of_json(data, source, ("spec",)))


def of_spec(document: Document) -> operator.ClusterPolicy:
    """Return the policy that a document describes whose value is the spec.

    Raise Refused with all its faults.
    """
    spec = validate(NicClusterPolicySpec, document)
    faults = []
    if spec.device_plugin and spec.rdma_shared_device_plugin:
        first, second = _PLUGIN_SPELLINGS
        problem = f"{first} and {second} are two spellings of one section"
        where = document.where((second,))
        faults.append(Refused(problem, remedy="Keep one of them", where=where))
    sections = {
        "ofedDriver": spec.ofed_driver,
        **_plugins(spec),
        "nvPeerDriver": spec.nv_peer_driver,
    }
    for field, section in sections.items():
        for part in ("repository", "version") if section else ():
            if not (getattr(section, part) or getattr(spec.global_, part)):
                remedy, where = f"Add it here, or spec.global.{part}", document.where((field, part))
                faults.append(Refused("the field is missing", remedy=remedy, where=where))
    for field, section in _plugins(spec).items():
        if section and section.config is not None:
            faults += _config_faults(section.config, document.where((field, "config")))
    if faults:
        raise Refused.all(faults)
    return _policy(spec)


def _plugins(spec: NicClusterPolicySpec) -> Mapping[str, PluginSection | None]:
    """Return both device plugin sections under the spelling in the spec, the shared one first."""
    return {
        _PLUGIN_SPELLINGS[spec.device_plugin is None]: spec.device_plugin
        or spec.rdma_shared_device_plugin,
        _SRIOV: spec.sriov_device_plugin,
    }


def _policy(spec: NicClusterPolicySpec) -> operator.ClusterPolicy:
    """Return the policy that a spec without faults describes."""
    common, ofed, peer = spec.global_, spec.ofed_driver, spec.nv_peer_driver
    shared, sriov = _plugins(spec).values()
    server = _network_server(spec)
    secrets = [*common.image_pull_secrets]
    for section in (ofed, shared, sriov, peer, _cni_plugins(spec) if server else None):
        secrets += section.image_pull_secrets if section else ()
    peer_driver = None
    if peer:
        files = peer.gpu_driver_source_path or ""
        peer_driver = operator.PeerDriverSection(_image(peer, common), files)
    return operator.ClusterPolicy(
        name="",
        namespace="",
        uid="",
        driver=driver.driver(ofed, _image(ofed, common)) if ofed else None,
        device_plugin=_plugin(shared, common, _SHARED_CONTAINERS, networks=server is shared),
        sriov_plugin=_plugin(sriov, common, _SRIOV_CONTAINERS, networks=server is sriov),
        peer_driver=peer_driver,
        upgrades=driver.upgrades(ofed.upgrade_policy if ofed else None),
        pull_secrets=tuple(dict.fromkeys(secrets)),
        tolerations=spec.tolerations,
        affinity=driver.affinity(spec.node_affinity),
        notes=tuple(_notes(spec, server)),
    )


def _plugin(
    section: PluginSection | None,
    common: GlobalSection,
    containers: Sequence[str],
    *,
    networks: bool,
) -> operator.DevicePluginSection | None:
    """Return a device plugin; None without its section.

    Without a configuration it is not known which resources it offers.
    """
    if section is None:
        return None
    text = section.config
    pools = config.parse(text.encode(), "").pools if text is not None else ()
    return operator.DevicePluginSection(
        _image(section, common),
        text,
        networks,
        tuple(pool.resource for pool in pools),
        driver.requirements(section.container_resources, containers),
    )


def _notes(
    spec: NicClusterPolicySpec, server: PluginSection | None
) -> Iterator[operator.PolicyNote]:
    """Yield a note for each field with no effect, or another effect than people may expect."""
    yield from driver.without_effect(spec)
    plugins = _plugins(spec)
    if _cni_plugins(spec):
        path = ("secondaryNetwork", "cniPlugins")
        spelling, other = plugins
        if server is None:
            yield driver.note(
                path,
                f"has no effect: only the image of {spelling} or {other} serves networks",
                f"Name kube-rdma's image in cniPlugins and in {spelling}, or remove cniPlugins",
            )
        elif server is not spec.sriov_device_plugin and spec.sriov_device_plugin:
            yield driver.note(
                path,
                f"serves shares of {spelling} alone, not those of {other}",
                f"Write the pools of both as one NodePolicy into {spelling}.config "
                "(docs/config.md)",
            )
    for (field, section), names in zip(
        plugins.items(), (_SHARED_CONTAINERS, _SRIOV_CONTAINERS), strict=True
    ):
        if section:
            yield from driver.resource_notes((field,), section.container_resources, names)
    if spec.ofed_driver:
        yield from driver.driver_notes(spec.ofed_driver, _image(spec.ofed_driver, spec.global_))


def _network_server(spec: NicClusterPolicySpec) -> PluginSection | None:
    """Return the device plugin section with the image of the CNI plugins, None without one.

    Such a plugin also attaches networks. The shared plugin is preferred.
    """
    image = _cni_plugins(spec)
    return next(
        (
            section
            for section in _plugins(spec).values()
            if section and image and _image(section, spec.global_) == _image(image, spec.global_)
        ),
        None,
    )


def _cni_plugins(spec: NicClusterPolicySpec) -> driver.ImageSection | None:
    return spec.secondary_network.cni_plugins if spec.secondary_network else None


def _image(section: driver.ImageSection, common: GlobalSection) -> operator.ComponentImage:
    return operator.ComponentImage(
        section.repository or common.repository or "",
        section.image,
        section.version or common.version or "",
    )


def _config_faults(text: str, where: str) -> Iterator[Refused]:
    """Yield the faults of a device plugin's configuration in the object at `where`."""
    if not text.strip():
        yield Refused(
            "the configuration of the device plugin is empty",
            remedy='Write one, such as {"mode": "hca"}, or leave it out and make its ConfigMap',
            where=where,
        )
        return
    try:
        config.parse(text.encode(), where)
    except Refused as fault:
        yield fault


class PolicyMetadata(Typed):
    """The name of a policy; the API server checks all other metadata."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(examples=["example-nicclusterpolicy"])
    """name is the name of the policy. Of several policies of an operator only the oldest counts.
    Example: example-nicclusterpolicy.
    """


class NicClusterPolicyObject(Typed):
    """NicClusterPolicy says which driver, device plugins and peer-memory driver run on nodes with
    NVIDIA cards. The operator of kube-rdma deploys them.
    """

    api_version: Literal["mellanox.com/v1alpha1"]
    kind: Literal["NicClusterPolicy"]
    metadata: PolicyMetadata
    spec: NicClusterPolicySpec
    """spec is what the policy asks for. A section that is left out is not deployed."""
    status: OfPrograms[NicClusterPolicyStatus] | None = None
    """status is how far the operator is with the policy. Only the operator writes it."""
