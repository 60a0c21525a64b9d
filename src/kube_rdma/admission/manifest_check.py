"""Judges files that people are about to apply: the meaning of each object, and of all together.

    files ─► documents ─► objects, pods (documents/manifests) ─┬─► facts: pools, networks, claims
                                                               └─► judged by these facts

`kube-rdma config check` shows the outcome. The rules are admission/rules, which explain applies to
a pod of the cluster. What only the cluster knows, such as other objects there, is not held against
a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.admission.documents import manifests
from kube_rdma.admission.documents import pod_manifest as pod_api
from kube_rdma.admission.documents.manifests import Manifest, PodSection
from kube_rdma.admission.rules.claims import ClaimSelector, foreign_selectors
from kube_rdma.admission.rules.completions import completions
from kube_rdma.admission.rules.findings import findings, misplaced
from kube_rdma.admission.rules.networks import two_kinds
from kube_rdma.admission.rules.shares import candidates, of_pools, uncounted, with_shares
from kube_rdma.admission.views import Addition, CheckedObject, ManifestCheck
from kube_rdma.attach.documents import network_definition
from kube_rdma.attach.rules.addresses import default_routes
from kube_rdma.claims import parameters
from kube_rdma.claims.templates import CARD_CLASS, SHARED_CLASS
from kube_rdma.install.rules.presets import PRESETS
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam.rules.pools import overlaps
from kube_rdma.ipam.rules.subpools import subpools
from kube_rdma.lib.phrases import listed
from kube_rdma.lib.text.document import Document, ManifestDocument, Path, of_json, section
from kube_rdma.lib.text.faults import no_fields
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.yaml_manifests import WRITE_OUT
from kube_rdma.model import admission
from kube_rdma.model.attach import kinds
from kube_rdma.model.attach.attachment import Network
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.finding import Finding, Severity
from kube_rdma.model.ipam import IPPool, PoolName
from kube_rdma.model.operator import ClusterPolicy
from kube_rdma.operator.documents import nic_cluster_policy
from kube_rdma.pools.config import judged
from kube_rdma.pools.documents import config

# Storage that manifests describe: the driver of a claim's volume.


class WrittenStorage:
    """The PersistentVolumeClaims, volumes and classes in files, to find a volume's driver."""

    def __init__(self) -> None:
        # Namespace, name, storage class and volume of each PersistentVolumeClaim.
        self._claims: list[tuple[str, str, str, str]] = []
        self._volumes: dict[tuple[str, str], str] = {}  # drivers, by own name and by claim
        self._classes: dict[str, str] = {}  # storage classes with their drivers

    def add(self, manifest: Manifest) -> None:
        """Add a claim, volume or storage class of a file."""
        value = fields_of(manifest.document.value)
        spec = fields_of(value.get("spec"))
        if manifest.kind == "StorageClass":
            self._classes[manifest.name] = text_of(value.get("provisioner"))
        elif manifest.kind == "PersistentVolume":
            to = fields_of(spec.get("claimRef"))
            claim = (text_of(to.get("namespace")), text_of(to.get("name")))
            driver = text_of(fields_of(spec.get("csi") or spec.get("flexVolume")).get("driver"))
            self._volumes |= {("", manifest.name): driver, claim: driver}
        else:
            space = manifest.namespace or pod_api.DEFAULT_NAMESPACE
            name, volume = (text_of(spec.get(key)) for key in ("storageClassName", "volumeName"))
            self._claims.append((space, manifest.name, name, volume))

    def bound(self) -> Iterator[admission.ClaimFacts]:
        """Yield each claim with the driver of its volume, or of its class."""
        for space, claim, name, volume in self._claims:
            known = (self._volumes.get(key) for key in (("", volume), (space, claim)))
            driver = next((one for one in known if one is not None), self._classes.get(name, ""))
            yield admission.ClaimFacts(space, claim, driver, name)


def fields_of(value: object) -> Mapping[str, object]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """Return the value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


_KUEUE = "kueue.x-k8s.io"
_QUEUE = f"{_KUEUE}/queue-name"  # a label of workloads
_CONF = ("spec", "config")
_PODS = "pods"
_NVIDIA = ("MacvlanNetwork", "HostDeviceNetwork", "IPoIBNetwork")
_SRIOV, _SRIOV_KINDS = "sriovnetwork.openshift.io", ("SriovNetwork", "SriovIBNetwork", "OVSNetwork")
_PREFIXES: Mapping[str, tuple[str, ...]] = {
    # Mellanox/network-operator@v25.7 pkg/state/state_hostdevice_network.go
    "mellanox.com": ("nvidia.com/",),
    # RESOURCE_PREFIX of sriov-network-operator: its default, and that of the network operator
    _SRIOV: ("openshift.io/", "nvidia.com/"),
}
_CLAIMS = {
    "ResourceClaim": "claim",
    "ResourceClaimTemplate": "claim template",
    "DeviceClass": "device class",
}
_OURS = dict.fromkeys((CARD_CLASS, SHARED_CLASS), f'device.driver == "{DRIVER}"')
_OPERATOR = PRESETS["nvidia-operator"]["namespace"]["name"]
_OFED_2020 = "ofed-driver"  # the image as 0.1.0 names it; mofed and doca-driver came after it
_NO_NAMESPACE = (
    "the policy names no namespace: with the definition of 0.1.0 it is in one that no operator sees"
)
_NAMESPACE = (
    f"Add metadata.namespace: {_OPERATOR}, or where else the operator runs; a definition for the "
    "whole cluster (controller.policyScope=Cluster) takes it too"
)


Readers = Mapping[tuple[str, str], Callable[[Document], str]]
"""What returns the meaning of an object or raises Refused, by API group and kind."""


class _Checker:
    """A collector of facts, pods and faults from the objects in files."""

    def __init__(self, parts: Iterable[Document | Refused], readers: Readers) -> None:
        self.objects: list[CheckedObject] = []
        self.pods: list[tuple[Manifest, PodSection, admission.PodTemplate]] = []
        self.findings: list[Finding] = []
        self.pools: list[admission.OfferedPool] = []
        self.definitions: list[network_definition.NetworkDefinition] = []
        self.placeless: list[str] = []  # networks without a namespace of their own
        self.ip_pools: list[IPPool] = []
        self.brought: list[PoolName] = []  # pools that networks bring along
        self.resources: list[str] = []  # that policies and networks name
        self.handlers: list[tuple[str, str]] = []
        self.storage = WrittenStorage()
        self.queues: dict[tuple[str, str], str] = {}  # LocalQueues with their ClusterQueues
        self.covered: dict[str, frozenset[str]] = {}  # resources of a ClusterQueue
        self.maps: dict[tuple[str, str], tuple[admission.OfferedPool, ...]] = {}
        self.selectors: list[ClaimSelector] = []
        self.classes: dict[str, str] = {}  # expressions of a DeviceClass, by its name
        self._readers = readers
        for part in parts:
            self._add(part)

    def _add(self, part: Document | Refused) -> None:
        """Add one document of a file, or a note why it is unreadable."""
        if isinstance(part, Refused):
            self.findings += Finding.of_refused(part)
            place = part.where.partition(": ")[0].rsplit(":", 1)[0]  # without the column
            self.objects.append(CheckedObject(place, "document", "", "unreadable"))
            return
        document = part
        listed_objects = manifests.manifests(document)
        remarks = document.remarks if isinstance(document, ManifestDocument) else ()
        if not listed_objects:
            # An agent reads it as strictly as `config check` reads it alone.
            self.findings += (one for remark in remarks for one in Finding.of_refused(remark))
            self._try(document, "configuration", "", lambda: self._configuration(document, ()))
            return
        for remark in remarks:
            severity = Severity.ADVICE if remark.remedy == WRITE_OUT else Severity.WARNING
            found = Finding.of_refused(remark)
            self.findings += (replace(one, severity=severity) for one in found)
        for manifest in listed_objects:
            kind = (manifest.group, manifest.kind)
            look = partial(_LOOKS.get(kind, _Checker.of_pods), self, manifest)
            if reader := self._readers.get(kind):
                look = partial(reader, manifest.document)
            self._try(manifest.document, manifest.kind, manifest.name, look)

    def facts(self) -> admission.AdmissionFacts:
        """Return what the files say about the cluster, for the rules.

        Without an IPPool in the files `ip_pools` is None: the cluster may have some.
        """
        names = (*(pool.name for pool in self.ip_pools), *self.brought)
        return admission.AdmissionFacts(
            pools=tuple(self.pools),
            networks=tuple(one.network for one in self.definitions),
            ip_pools=names if self.ip_pools else None,
            reserved=tuple(one for one in self.ip_pools if one.namespaces),
            claims=tuple(self.storage.bound()),
            resources=tuple(self.resources),
            handlers=tuple(self.handlers),
            placeless=tuple(self.placeless),
        )

    def warn(self, where: str, sentences: Iterable[str], remedy: str = "") -> None:
        """Add a warning for each sentence; `where` is empty where several objects are meant."""
        severity = Severity.WARNING
        self.findings += (Finding(where, text, "", remedy, severity) for text in sentences)

    def _try(self, document: Document, kind: str, name: str, look: Callable[[], str]) -> None:
        """Add an object with its meaning, as `look` returns it, or with the faults it raises."""
        self.templates: tuple[CheckedObject, ...] = ()
        try:
            meaning = look()
        except Refused as refused:
            self.findings += Finding.of_refused(refused)
            meaning = "refused"
        place = f"{document.source}:{document.place(()).line}"
        self.objects.append(CheckedObject(place, kind, name, meaning, self.templates))

    def of_pods(self, manifest: Manifest) -> str:
        """Add the pods of an object, which are judged after all files are read."""
        every = [(part, self._loaded(part, manifest)) for part in manifests.pods(manifest)]
        templates = [(part, pod) for part, pod in every if pod is not None]
        self.pods += ((manifest, part, pod) for part, pod in templates)
        self.findings += around(manifest, templates)
        shown = tuple(_shown(part, pod) for part, pod in every)
        if len(shown) > 1:
            self.templates = tuple(one for one in shown if one.meaning != _PODS)
            pods = f"{_PODS} of {listed([one.name for one in shown])}"
        else:
            pods = shown[0].meaning if shown else ""
        return " and ".join(filter(None, (pods, self._claims(manifest))))

    def of_claim(self, manifest: Manifest) -> str:
        """Check a claim, its template or a class for parameters of kube-rdma's driver."""
        return self._claims(manifest) or _CLAIMS[manifest.kind]

    def _claims(self, manifest: Manifest) -> str:
        """Check an object's claims; return what they are, "" without kube-rdma's parameters."""
        places = parameters.places(manifest.document, manifest.group, manifest.kind)
        claims = [parameters.judged(manifest.document, place) for place in places]
        is_class = manifest.kind == "DeviceClass"
        for place in places:
            for named, expression, path in parameters.selectors(manifest.document, place):
                where = manifest.document.where(path)
                device_class = manifest.name if is_class else named
                self.selectors.append(ClaimSelector(expression, where, device_class))
                if is_class:
                    before = self.classes.get(manifest.name, "")
                    self.classes[manifest.name] = f"{before} && {expression}"
        if not any(claim.configs for claim in claims):
            return ""
        return f"{_CLAIMS.get(manifest.kind, 'claims')} with parameters of kube-rdma"

    def of_parameters(self, manifest: Manifest) -> str:
        """Check a document of parameters that is not part of a claim yet."""
        parameters.of_document(manifest.document)
        return "parameters of a claim or class, to be written below opaque.parameters"

    def _loaded(self, part: PodSection, manifest: Manifest) -> admission.PodTemplate | None:
        """Return a pod; raise Refused for a faulty one.

        If the kind is of another project, warn of the faults and return None.
        """
        try:
            return pod_api.load(part, manifest.namespace, manifest.name)
        except Refused as refused:
            if manifests.is_own(manifest):
                raise
            for fault in (refused, *refused.more):
                self.warn(fault.where, (fault.problem,), fault.remedy)
            return None

    def _configuration(self, document: Document, selector: tuple[tuple[str, str], ...]) -> str:
        configuration = judged(config.of_document(document))
        self.pools += (admission.OfferedPool(spec, selector) for spec in configuration.pools)
        self.warn("", configuration.warnings)
        names = listed([spec.resource for spec in configuration.pools])
        return f"offers {names}" if names else "virtual functions"

    def of_node_policy(self, manifest: Manifest) -> str:
        """Add the pools of a NodePolicy."""
        labels = section(manifest.document, ("spec", "nodeSelector")).value
        selector = tuple(sorted((str(k), str(v)) for k, v in fields_of(labels).items()))
        return self._configuration(manifest.document, selector)

    def of_config_map(self, manifest: Manifest) -> str:
        """Add the pool configurations in a ConfigMap; skip its other texts."""
        meanings, before = [], len(self.pools)
        for key, text in fields_of(section(manifest.document, ("data",)).value).items():
            inner = _readable(text, manifest.document.where(("data", key)))
            if inner is not None and config.is_dialect(inner.value):
                meanings.append(self._configuration(inner, ()))
        self.maps[(manifest.namespace, manifest.name)] = tuple(self.pools[before:])
        return ", ".join(meanings)

    def of_network(self, manifest: Manifest) -> str:
        """Add a NetworkAttachmentDefinition."""
        document = manifest.document
        text = section(document, _CONF).value
        space = manifest.namespace or pod_api.DEFAULT_NAMESPACE
        annotations = fields_of(section(document, ("metadata", "annotations")).value)
        resource = annotations.get(network_definition.RESOURCE)
        self.resources += [resource] if isinstance(resource, str) and resource else []
        if isinstance(resource, str) and resource and "/" not in resource:
            where = document.where(("metadata", "annotations", network_definition.RESOURCE))
            problem = f"{resource} has no prefix, so no container can ask for it"
            self.warn(where, (problem,), f"Write it with its prefix, such as rdma/{resource}")
        if not isinstance(text, str) or not text.strip():
            return "a network that the node's own CNI configuration describes"
        try:
            definition = network_definition.load(
                space, manifest.name, text.encode(), str(resource) if resource else None
            )
            if definition.ipam.pool:
                subpools(definition.ipam.pool)  # an ADD refuses one without any free address
        except Refused as refused:
            raise _inside(document, _CONF, refused) from None
        self._as_json(document, text, definition.network)
        self.definitions.append(definition)
        self.placeless += [] if manifest.namespace else [definition.network.name]
        if definition.ipam.pool:
            self.brought.append(definition.ipam.pool.name)
        where = document.where(_CONF)
        self.warn(where, definition.warnings)
        routed = default_routes((definition.network,), ())
        self.findings += (replace(one, subject=where) for one in routed)
        tied = f" with {resource}" if resource else ""
        return f"network {definition.network.name}{tied}"

    def _as_json(self, document: Document, text: str, network: Network) -> None:
        """Warn of a network configuration that is not JSON.

        Raise Refused where the plugin of another project reads it.
        """
        where = document.where(_CONF)
        try:
            of_json(text.encode(), where)
        except Refused as refused:
            problem = refused.problem
            reader = (
                network.plugin if isinstance(network, kinds.ForeignNetwork) else network.ipam_plugin
            )
            if reader:
                remedy = f"Write spec.config as JSON, as the plugin {reader} reads nothing else"
                raise Refused(problem, remedy=remedy, where=where) from None
            self.warn(where, (problem,), "Write it as JSON, as Multus reads nothing else")

    def of_made_network(self, manifest: Manifest) -> str:
        """Add the resource of an object from which an operator makes a network definition."""
        spec = fields_of(manifest.document.value).get("spec")
        if resource := text_of(fields_of(spec).get("resourceName")):
            prefixes = _PREFIXES[manifest.group] if "/" not in resource else ("",)
            self.resources += (f"{prefix}{resource}" for prefix in prefixes)
        if manifest.group == "mellanox.com":
            sentence = "only NVIDIA's operator makes a NetworkAttachmentDefinition of it"
            remedy = "Without it write the NetworkAttachmentDefinition (docs/networks.md)"
            self.warn(manifest.document.where(("kind",)), (sentence,), remedy)
        return (
            f"an operator makes NetworkAttachmentDefinition {manifest.name} of it, which is "
            "what kube-rdma reads"
        )

    def of_ip_pool(self, manifest: Manifest) -> str:
        """Add an IPPool."""
        pool = ip_pool.load(manifest.document)
        self.ip_pools.append(pool)
        where = manifest.document.where(("spec", "routes"))
        self.findings += (replace(one, subject=where) for one in default_routes((), (pool,)))
        return f"addresses of network {pool.network}"

    def of_cluster_policy(self, manifest: Manifest) -> str:
        """Add the resources of a NicClusterPolicy, and warn of fields that have no effect."""
        spec = section(manifest.document, ("spec",))
        if not isinstance(spec.value, dict):
            raise no_fields(spec, "Write spec with devicePlugin or ofedDriver")
        policy = nic_cluster_policy.of_spec(spec)
        for note in policy.notes:
            self.warn(spec.where(note.path, key=True), (note.sentence,), note.remedy)
        if not manifest.namespace and section(spec, ("ofedDriver", "image")).value == _OFED_2020:
            where = manifest.document.where(("metadata",), key=True)
            self.warn(where, (_NO_NAMESPACE,), _NAMESPACE)
        self.resources += (name for plugin in policy.plugins for name in plugin.resources)
        if policy.is_empty:
            return "nothing that kube-rdma deploys"
        return " and ".join(_parts(policy))

    def of_queue(self, manifest: Manifest) -> str:
        """Add a LocalQueue or ClusterQueue of Kueue, with the resources that it covers."""
        spec = fields_of(section(manifest.document, ("spec",)).value)
        if manifest.kind == "LocalQueue":
            space = manifest.namespace or pod_api.DEFAULT_NAMESPACE
            self.queues[(space, manifest.name)] = text_of(spec.get("clusterQueue"))
        else:
            groups = spec.get("resourceGroups")
            named = (fields_of(one).get("coveredResources") for one in _listed(groups))
            self.covered[manifest.name] = frozenset(str(one) for of in named for one in _listed(of))
        return "queue of Kueue"

    def uncovered(self) -> None:
        """Warn of devices that a pod's ClusterQueue does not cover: Kueue never admits the pod.

        See kubernetes-sigs/kueue@v0.14 pkg/scheduler/flavorassigner, "unavailable in ClusterQueue".
        """
        for manifest, part, pod in self.pods:
            queue = section(manifest.document, ("metadata", "labels", _QUEUE)).value
            name = self.queues.get((pod.namespace, text_of(queue)), "")
            asks = {ask.resource: ask for one in pod.containers for ask in one.asks if ask.count}
            for resource in asks.keys() - self.covered.get(name, asks.keys()):
                problem = f"ClusterQueue {name} does not cover {resource}, so Kueue never admits it"
                remedy = f"Add {resource} to its coveredResources, with a nominalQuota"
                self.warn(part.where(asks[resource].path), (problem,), remedy)

    def offered_twice(self) -> None:
        """Warn of a resource that another device plugin may also offer on the same nodes.

        The kubelet keeps the plugin that registered last: kubernetes@v1.34
        pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go.
        """
        facts = self.facts()
        for manifest, _, pod in self.pods:
            spec = fields_of(section(manifest.document, ("spec", "template", "spec")).value)
            if manifest.kind != "DaemonSet" or "kube-rdma" in str(spec.get("containers")):
                continue  # no device plugin, or our agent, which reads both
            sources = [fields_of(one).get("configMap") for one in _listed(spec.get("volumes"))]
            names = {text_of(fields_of(one).get("name")) for one in sources}
            maps = (self.maps.get((manifest.namespace, name), ()) for name in names)
            theirs = [pool for pools in maps for pool in pools]
            resources = {one.spec.resource for one in theirs}
            found = [pool for name in resources for pool in candidates(pod, name, facts)]
            plugin = f"{manifest.name} ({manifest.document.where(()).rpartition(':')[0]})"
            for pool in found:
                if pool not in theirs:
                    problem = f"DaemonSet {plugin} offers {pool.spec.resource} too, and the kubelet"
                    remedy = "Remove that DaemonSet, or give one of the two another resource"
                    self.warn(pool.spec.source, (f"{problem} keeps the last to register",), remedy)

    def of_node_policies(self, manifest: Manifest) -> str:
        """Warn of a NicNodePolicy, which kube-rdma's operator does not read."""
        where = manifest.document.where(("kind",))
        remedy = "Write its sections into the NicClusterPolicy, with nodeAffinity"
        self.warn(where, ("kube-rdma's operator reads no NicNodePolicy",), remedy)
        return "nothing that kube-rdma reads"

    def of_storage(self, manifest: Manifest) -> str:
        """Add a PersistentVolumeClaim, PersistentVolume or StorageClass."""
        self.storage.add(manifest)
        return "storage"

    def of_quota(self, manifest: Manifest) -> str:
        """Warn of keys of a ResourceQuota that limit nothing."""
        path = ("spec", "hard")
        for key in fields_of(section(manifest.document, path).value):
            if meant := uncounted(key):
                problem = f"{key} limits nothing, for a quota counts a device by its requests alone"
                where = manifest.document.where((*path, key), key=True)
                self.warn(where, (problem,), f"Write {meant}")
        return "quota"

    def of_runtime_class(self, manifest: Manifest) -> str:
        """Add the handler of a RuntimeClass."""
        handler = text_of(fields_of(manifest.document.value).get("handler"))
        self.handlers.append((manifest.name, handler))
        return f"runtime class with handler {handler}"


_LOOKS: Mapping[tuple[str, str], Callable[[_Checker, Manifest], str]] = {
    ("kube-rdma.io", "NodePolicy"): _Checker.of_node_policy,
    ("kube-rdma.io", "IPPool"): _Checker.of_ip_pool,
    ("mellanox.com", "NicClusterPolicy"): _Checker.of_cluster_policy,
    ("mellanox.com", "NicNodePolicy"): _Checker.of_node_policies,
    ("k8s.cni.cncf.io", "NetworkAttachmentDefinition"): _Checker.of_network,
    ("kube-rdma.io", parameters.KIND): _Checker.of_parameters,
    **dict.fromkeys(((parameters.GROUP, kind) for kind in _CLAIMS), _Checker.of_claim),
    **dict.fromkeys((("mellanox.com", kind) for kind in _NVIDIA), _Checker.of_made_network),
    **dict.fromkeys(((_SRIOV, kind) for kind in _SRIOV_KINDS), _Checker.of_made_network),
    **dict.fromkeys(((_KUEUE, kind) for kind in ("ClusterQueue", "LocalQueue")), _Checker.of_queue),
    ("", "ResourceQuota"): _Checker.of_quota,
    ("", "ConfigMap"): _Checker.of_config_map,
    ("", "PersistentVolumeClaim"): _Checker.of_storage,
    ("", "PersistentVolume"): _Checker.of_storage,
    ("storage.k8s.io", "StorageClass"): _Checker.of_storage,
    ("node.k8s.io", "RuntimeClass"): _Checker.of_runtime_class,
}


def check(
    parts: Iterable[Document | Refused],
    settings: admission.AdmissionSettings = admission.USUAL,
    readers: Readers | None = None,
) -> ManifestCheck:
    """Return the meaning of all objects in files, in their order, with all findings.

    `parts` has a Refused in place of each document that could not be read. `readers` are those of
    kinds that packages above this one define.
    """
    checker = _Checker(parts, readers or {})
    checker.warn("", overlaps(checker.ip_pools))
    checker.uncovered()
    checker.offered_twice()
    checker.findings += foreign_selectors(checker.selectors, {**_OURS, **checker.classes})
    checker.findings += two_kinds(one.network for one in checker.definitions)
    facts = checker.facts()
    completing = with_shares(settings, of_pools(facts))
    additions: list[Addition] = []
    for _, section_of_pod, pod in checker.pods:
        checker.findings += (
            replace(one, subject=section_of_pod.where(one.path))
            for one in findings(pod, facts, settings)
        )
        additions += (
            Addition(
                section_of_pod.where(tuple(step for step in one.path if step != "-")), one.what
            )
            for one in completions(pod, completing)
        )
    pods = tuple((f"{part.source}:{part.place(()).line}", pod) for _, part, pod in checker.pods)
    return ManifestCheck(tuple(checker.objects), tuple(checker.findings), tuple(additions), pods)


def around(
    manifest: Manifest, templates: Sequence[tuple[PodSection, admission.PodTemplate]]
) -> tuple[Finding, ...]:
    """Return findings about pod annotations that were written on objects around the templates."""
    copied = not templates or manifests.copies_annotations(manifest)
    above = () if copied else manifests.annotations_above(manifest, [p for p, _ in templates])
    return tuple(
        replace(one, subject=manifest.document.where(one.path, key=True))
        for one in misplaced(above, [pod for _, pod in templates])
    )


class WrittenCluster(Frozen):
    """The pools of cards, networks and IPPools that files describe."""

    pools: tuple[admission.OfferedPool, ...] = ()
    definitions: tuple[network_definition.NetworkDefinition, ...] = ()
    ip_pools: tuple[IPPool, ...] = ()


def written_cluster(parts: Iterable[Document | Refused]) -> WrittenCluster:
    """Return pools, networks and IPPools of the documents; raise Refused for errors."""
    checker = _Checker(parts, {})
    errors = [one for one in checker.findings if one.is_error]
    if errors:
        raise Refused.all(
            [Refused(one.problem, remedy=one.remedy, where=one.subject) for one in errors]
        )
    return WrittenCluster(tuple(checker.pools), tuple(checker.definitions), tuple(checker.ip_pools))


def is_configuration(parts: Sequence[Document | Refused]) -> bool:
    """Decide whether a file is empty, or one pool configuration as an agent mounts it."""
    if len(parts) != 1 or isinstance(parts[0], Refused):
        return not parts
    return all(one.is_a("kube-rdma.io", "NodePolicy") for one in manifests.manifests(parts[0]))


def _parts(policy: ClusterPolicy) -> Iterator[str]:
    """Yield what a NicClusterPolicy deploys, as texts for `config check`."""
    if policy.driver or policy.peer_driver:
        yield "drivers"
    offered = [name for plugin in policy.plugins for name in plugin.resources]
    if offered:
        yield f"offers {listed(offered)}"
    if any(plugin.config is None for plugin in policy.plugins):
        yield "a device plugin with a ConfigMap of yours"


def _shown(part: PodSection, pod: admission.PodTemplate | None) -> CheckedObject:
    """Return the row for the pods of a template, with all resources that they ask for."""
    asks = [
        f"{ask.resource}: {ask.count if ask.known else '?'}"
        + (" (init)" if container.role is admission.ContainerRole.INIT else "")
        for container in (pod.containers if pod else ())
        for ask in container.asks
    ]
    meaning = f"{_PODS} with {listed(asks, 12)}" if asks else _PODS if pod else "not readable"
    return CheckedObject(f"{part.source}:{part.place(()).line}", "Pod", part.name, meaning)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _readable(text: object, source: str) -> Document | None:
    """Return a text that stands in an object as a document; None if it is no JSON or YAML."""
    if not isinstance(text, str):
        return None
    try:
        return read(text.encode(), source)
    except Refused:
        return None


def _inside(document: Document, path: Path, refused: Refused) -> Refused:
    """Return faults of a text in a field of an object, with the field's place before theirs."""
    where = document.where(path)
    return Refused.all(
        [
            Refused(one.problem, remedy=one.remedy, where=f"{where}: {one.where}")
            for one in (refused, *refused.more)
        ]
    )
