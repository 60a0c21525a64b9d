"""Files that people apply, judged before they do: what each object means, and all say together.

    files ─► documents ─► objects (api/admission/manifests) ─┬─► facts: pools, networks, claims
                                                             └─► pods, judged by these facts

`kube-rdma config check` shows the outcome. The rules are those of the admission webhook
(rules/admission); what only the cluster knows, such as other objects there, is not held against
a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.api.admission import manifests
from kube_rdma.api.admission import pod_manifest as pod_api
from kube_rdma.api.admission.manifests import Manifest
from kube_rdma.api.attach import network_definition
from kube_rdma.api.ipam import ip_pool
from kube_rdma.api.operator import nic_cluster_policy
from kube_rdma.api.pools import config
from kube_rdma.api.text.document import Document, Path, Section, section
from kube_rdma.api.text.faults import no_fields
from kube_rdma.api.text.reader import read
from kube_rdma.model.admission.facts import (
    USUAL,
    AdmissionFacts,
    AdmissionSettings,
    ClaimFacts,
    OfferedPool,
)
from kube_rdma.model.admission.pod_template import PodTemplate
from kube_rdma.model.attach.attachment import Network
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.ipam import IPPool, PoolName
from kube_rdma.model.operator.cluster_policy import ClusterPolicy
from kube_rdma.programs.config import judged
from kube_rdma.rules.admission.completions import completions
from kube_rdma.rules.admission.findings import findings
from kube_rdma.rules.install.presets import PRESETS
from kube_rdma.rules.ipam.pools import overlaps
from kube_rdma.rules.phrases import listed
from kube_rdma.views.admission import Addition, CheckedObject, ManifestCheck

_CONF = ("spec", "config")
_OPERATOR = PRESETS["nvidia-operator"]["namespace"]["name"]
_NO_NAMESPACE = (
    "the policy names no namespace: with the definition of 0.1.0 it is in one that no operator sees"
)
_NAMESPACE = (
    f"Add metadata.namespace: {_OPERATOR}, or where else the operator runs; a definition for the "
    "whole cluster (controller.policyScope=Cluster) takes it too"
)


class _WrittenVolume(Frozen):
    """A PersistentVolume: its driver and the claim that it is for."""

    name: str
    driver: str
    claim: tuple[str, str]


class _WrittenClaim(Frozen):
    """A PersistentVolumeClaim as it is written."""

    namespace: str
    name: str
    storage_class: str
    volume: str


class _Checker:
    """Collects facts, pods and faults, object by object."""

    def __init__(self) -> None:
        self.objects: list[CheckedObject] = []
        self.pods: list[tuple[Section, PodTemplate]] = []
        self.findings: list[Finding] = []
        self.pools: list[OfferedPool] = []
        self.networks: list[Network] = []
        self.ip_pools: list[IPPool] = []
        self.brought: list[PoolName] = []  # pools that networks bring along
        self.claims: list[_WrittenClaim] = []
        self.volumes: list[_WrittenVolume] = []
        self.classes: dict[str, str] = {}  # storage classes with their drivers

    def add(self, document: Document) -> None:
        """Look at one document of a file."""
        listed_objects = manifests.manifests(document)
        if not listed_objects:
            self._try(document, "configuration", "", lambda: self._configuration(document, ()))
        for manifest in listed_objects:
            look = partial(_LOOKS.get((manifest.group, manifest.kind), _Checker.of_pods), self)
            self._try(manifest.document, manifest.kind, manifest.name, partial(look, manifest))

    def facts(self) -> AdmissionFacts:
        """What the files say together. Without any pool of addresses, pools are elsewhere."""
        names = (*(pool.name for pool in self.ip_pools), *self.brought)
        return AdmissionFacts(
            pools=tuple(self.pools),
            networks=tuple(self.networks),
            ip_pools=names if self.ip_pools else None,
            claims=tuple(self._bound()),
        )

    def warn(self, where: str, sentences: Iterable[str], remedy: str = "") -> None:
        """Note what refuses no object; `where` is empty for what is about several."""
        severity = Severity.WARNING
        self.findings += (Finding(where, text, "", remedy, severity) for text in sentences)

    def _try(self, document: Document, kind: str, name: str, look: Callable[[], str]) -> None:
        """Note what an object is, or its faults."""
        try:
            meaning = look()
        except Refused as refused:
            self.findings += Finding.of_refused(refused)
            meaning = "refused"
        place = f"{document.source}:{document.place(()).line}"
        self.objects.append(CheckedObject(place, kind, name, meaning))

    def of_pods(self, manifest: Manifest) -> str:
        """What makes pods, to be judged when all files are read."""
        templates = [
            (part, pod_api.load(part, manifest.namespace, manifest.name))
            for part in manifests.pods(manifest)
        ]
        self.pods += templates
        asks = [
            f"{ask.resource}: {ask.count}"
            for _, pod in templates
            for container in pod.containers
            for ask in container.asks
        ]
        return f"pods with {listed(asks)}" if asks else ("pods" if templates else "")

    def _configuration(self, document: Document, selector: tuple[tuple[str, str], ...]) -> str:
        configuration = judged(config.of_document(document))
        self.pools += (OfferedPool(spec, selector) for spec in configuration.pools)
        self.warn("", configuration.warnings)
        names = listed([spec.resource for spec in configuration.pools])
        return f"offers {names}" if names else "virtual functions"

    def of_node_policy(self, manifest: Manifest) -> str:
        """A policy: what its nodes offer."""
        document = manifest.document
        before = len(self.pools)
        meaning = self._configuration(document, ())
        labels = section(document, ("spec", "nodeSelector")).value
        selector = tuple(sorted((str(k), str(v)) for k, v in _fields(labels).items()))
        self.pools[before:] = [OfferedPool(one.spec, selector) for one in self.pools[before:]]
        return meaning

    def of_config_map(self, manifest: Manifest) -> str:
        """A configuration in it is read as the agent would; any other text is passed over."""
        meanings = []
        for key, text in _fields(section(manifest.document, ("data",)).value).items():
            inner = _readable(text, manifest.document.where(("data", key)))
            if inner is not None and config.is_dialect(inner.value):
                meanings.append(self._configuration(inner, ()))
        return ", ".join(meanings)

    def of_network(self, manifest: Manifest) -> str:
        """A network by its configuration; one that is empty is known on the node alone."""
        document = manifest.document
        text = section(document, _CONF).value
        space = manifest.namespace or pod_api.DEFAULT_NAMESPACE
        annotations = _fields(section(document, ("metadata", "annotations")).value)
        resource = annotations.get(network_definition.RESOURCE)
        if not isinstance(text, str) or not text.strip():
            return "a network that the node's own CNI configuration describes"
        try:
            definition = network_definition.load(
                space, manifest.name, text.encode(), str(resource) if resource else None
            )
        except Refused as refused:
            raise _inside(document, _CONF, refused) from None
        self.networks.append(definition.network)
        if definition.ipam.pool:
            self.brought.append(definition.ipam.pool.name)
        self.warn(document.where(_CONF), definition.warnings)
        tied = f" with {resource}" if resource else ""
        return f"network {definition.network.name}{tied}"

    def of_ip_pool(self, manifest: Manifest) -> str:
        """A pool of addresses."""
        pool = ip_pool.load(manifest.document)
        self.ip_pools.append(pool)
        return f"addresses of network {pool.network}"

    def of_cluster_policy(self, manifest: Manifest) -> str:
        """What an operator is to deploy."""
        spec = section(manifest.document, ("spec",))
        if not isinstance(spec.value, dict):
            raise no_fields(spec, "Write spec with devicePlugin or ofedDriver")
        policy = nic_cluster_policy.of_spec(spec)
        for note in policy.notes:
            self.warn(spec.where(note.path, key=True), (note.sentence,), note.remedy)
        if not manifest.namespace:
            where = manifest.document.where(("metadata",), key=True)
            self.warn(where, (_NO_NAMESPACE,), _NAMESPACE)
        if policy.is_empty:
            return "nothing that kube-rdma deploys"
        return " and ".join(_parts(policy))

    def of_vendor_kind(self, manifest: Manifest) -> str:
        """What NVIDIA's operator alone acts on."""
        where = manifest.document.where(("kind",))
        if manifest.kind == "NicNodePolicy":
            remedy = "Write its sections into the NicClusterPolicy, with nodeAffinity"
            self.warn(where, ("kube-rdma's operator reads no NicNodePolicy",), remedy)
        else:
            sentence = "only NVIDIA's operator makes a NetworkAttachmentDefinition of it"
            remedy = (
                "Without that operator write the NetworkAttachmentDefinition (docs/networks.md)"
            )
            self.warn(where, (sentence,), remedy)
        return "nothing that kube-rdma reads"

    def of_storage(self, manifest: Manifest) -> str:
        """Claims, volumes and classes: only what says whose driver a volume has."""
        value = _fields(manifest.document.value)
        spec = _fields(value.get("spec"))
        if manifest.kind == "StorageClass":
            self.classes[manifest.name] = _text(value.get("provisioner"))
        elif manifest.kind == "PersistentVolume":
            to = _fields(spec.get("claimRef"))
            claim = (_text(to.get("namespace")), _text(to.get("name")))
            driver = _text(_fields(spec.get("csi") or spec.get("flexVolume")).get("driver"))
            self.volumes.append(_WrittenVolume(manifest.name, driver, claim))
        else:
            space = manifest.namespace or pod_api.DEFAULT_NAMESPACE
            name = _text(spec.get("storageClassName"))
            volume = _text(spec.get("volumeName"))
            self.claims.append(_WrittenClaim(space, manifest.name, name, volume))
        return "storage"

    def _bound(self) -> Iterator[ClaimFacts]:
        """Each claim with the driver of its volume, or of its class."""
        by_name = {volume.name: volume for volume in self.volumes}
        by_claim = {volume.claim: volume for volume in self.volumes}
        for claim in self.claims:
            volume = by_name.get(claim.volume) or by_claim.get((claim.namespace, claim.name))
            driver = volume.driver if volume else self.classes.get(claim.storage_class, "")
            yield ClaimFacts(claim.namespace, claim.name, driver, claim.storage_class)


_LOOKS: Mapping[tuple[str, str], Callable[[_Checker, Manifest], str]] = {
    ("kube-rdma.io", "NodePolicy"): _Checker.of_node_policy,
    ("kube-rdma.io", "IPPool"): _Checker.of_ip_pool,
    ("mellanox.com", "NicClusterPolicy"): _Checker.of_cluster_policy,
    **{
        ("mellanox.com", kind): _Checker.of_vendor_kind
        for kind in ("NicNodePolicy", "MacvlanNetwork", "HostDeviceNetwork", "IPoIBNetwork")
    },
    ("k8s.cni.cncf.io", "NetworkAttachmentDefinition"): _Checker.of_network,
    ("", "ConfigMap"): _Checker.of_config_map,
    ("", "PersistentVolumeClaim"): _Checker.of_storage,
    ("", "PersistentVolume"): _Checker.of_storage,
    ("storage.k8s.io", "StorageClass"): _Checker.of_storage,
}


def check(documents: Iterable[Document], settings: AdmissionSettings = USUAL) -> ManifestCheck:
    """All that is to be said of the documents of some files, in their order."""
    checker = _Checker()
    for document in documents:
        checker.add(document)
    checker.warn("", overlaps(checker.ip_pools))
    facts = checker.facts()
    additions: list[Addition] = []
    for part, pod in checker.pods:
        checker.findings += (
            replace(one, subject=part.where(one.path)) for one in findings(pod, facts, settings)
        )
        additions += (
            Addition(part.where(tuple(step for step in one.path if step != "-")), one.what)
            for one in completions(pod, settings)
        )
    return ManifestCheck(tuple(checker.objects), tuple(checker.findings), tuple(additions))


def is_configuration(documents: Sequence[Document]) -> bool:
    """Whether a file is what an agent mounts, one document without another kind of object."""
    if len(documents) != 1:
        return False
    listed_objects = manifests.manifests(documents[0])
    return all(one.is_a("kube-rdma.io", "NodePolicy") for one in listed_objects)


def _parts(policy: ClusterPolicy) -> Iterator[str]:
    """What a policy deploys, in the words of the command."""
    if policy.driver or policy.peer_driver:
        yield "drivers"
    offered = [name for plugin in policy.plugins for name in plugin.resources]
    if offered:
        yield f"offers {listed(offered)}"
    if any(plugin.config is None for plugin in policy.plugins):
        yield "a device plugin with a ConfigMap of yours"


def _readable(text: object, source: str) -> Document | None:
    """A text inside of an object; None for what is no configuration's language."""
    if not isinstance(text, str):
        return None
    try:
        return read(text.encode(), source)
    except Refused:
        return None


def _inside(document: Document, path: Path, refused: Refused) -> Refused:
    """The faults of a text that stands in a field of an object."""
    where = document.where(path)
    return Refused.all(
        [
            Refused(one.problem, remedy=one.remedy, where=f"{where}: {one.where}")
            for one in (refused, *refused.more)
        ]
    )


def _fields(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
