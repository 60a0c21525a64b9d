"""The values of an installation as people write them: for `kube-rdma render` and the Helm chart.

Everything but the preset has a value of the preset's or of everyone's (rules/install/presets), so
that a file holds only what differs. The chart's values.schema.json is made from these models; here
the same values are read with the place of each fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from kube_rdma.api.config import untitled
from kube_rdma.api.dialect import Many, Typed
from kube_rdma.api.document import Document
from kube_rdma.api.faults import validate
from kube_rdma.api.ip_pool import IPPoolSpec
from kube_rdma.api.ip_words import Label
from kube_rdma.api.words import TextForm

_REPOSITORY = TextForm(
    r"[a-z0-9][a-zA-Z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9._-]+)+",
    "a registry with a repository, without a tag",
    "registry.example.com/rdma/kube-rdma",
)
_TAG = TextForm(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}", "a tag of an image", "0.1.0")
_DIGEST = TextForm(r"sha256:[0-9a-f]{64}", "a digest of an image", f"sha256:{'0' * 64}")
_FOLDER = TextForm(r"/[^\s:]*[^\s:/]", "a folder of the host", "/opt/cni/bin")

_RESOURCES = TextForm(
    r"([a-zA-Z0-9./*-]+(,[a-zA-Z0-9./*-]+)*)?",
    "a list of resources, with commas between them",
    "rdma/*,vke.volcengine.com/rdma",
)
_NAMES = TextForm(
    r"([a-zA-Z0-9.-]+(,[a-zA-Z0-9.-]+)*)?",
    "a list of names, with commas between them",
    "vepfs.csi.volcengine.com",
)
_SIZE = TextForm(r"[1-9][0-9]{0,11}([kMGTP]|[KMGTP]i)?", "a size of memory", "8Gi")

_OBJECT = TextForm(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?", "the name of an object", "kube-rdma")
_BASE64 = TextForm(r"([A-Za-z0-9+/]+={0,2})?", "one text in base64", "LS0tLS1CRUdJTg==")
_CERTIFICATE = TextForm(
    r"([a-z0-9-]+/[a-z0-9.-]+)?", "a Certificate with its namespace", "kube-rdma-vke/admission"
)

Folder: TypeAlias = Annotated[str, _FOLDER]
Replicas: TypeAlias = Annotated[int, Field(ge=1, le=9)]
Object: TypeAlias = dict[str, Any]  # as Kubernetes has it, which checks it itself


class PullSecret(Typed):
    """The name of a Secret of type kubernetes.io/dockerconfigjson."""

    name: str = Field(examples=["registry"])


class InstalledImage(Typed):
    """The node image. A digest counts more than a tag; pull secrets are of the namespace."""

    repository: Annotated[str, _REPOSITORY] = ""
    tag: Annotated[str, _TAG] = ""
    digest: Annotated[str, _DIGEST] = ""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: Many[PullSecret] = ()


class InstalledNamespace(Typed):
    """Where the objects are, whatever namespace Helm is told; `create` it with its label."""

    name: Label = ""
    create: bool = False


class InstalledAgent(Typed):
    """The agents, one on each node.

    `config` is the text of their configuration (docs/config.md). `otherPlugins`: networks of other
    CNI plugins; `deviceInfo`: tell Multus which device a share is; `virtualFunctions`: make them;
    `startupTaint`: take the taint kube-rdma.io/starting off the node (docs/agent.md).
    `nodeLabels`: where networks are put into pods, `write` labels the node below kube-rdma.io/;
    `write-nfd` also with labels of Node Feature Discovery, by which operators start drivers;
    `leave` touches none; `remove` takes away what an agent wrote (docs/labels.md).
    `namespaceIsolation`: namespaces, with commas, whose networks every pod may name beside those of
    its own; empty: of any namespace, as with Multus in its default (docs/tenancy.md).
    """

    enabled: bool = True
    config: str = ""
    node_selector: dict[str, str] = Field(default_factory=dict, examples=[{"pool": "rdma"}])
    tolerations: Many[Object] = ()
    resources: Object = Field(default_factory=dict)
    other_plugins: bool = False
    device_info: bool = False
    virtual_functions: bool = False
    startup_taint: bool = False
    node_labels: Literal["write", "write-nfd", "leave", "remove"] = "write"
    namespace_isolation: Annotated[str, _NAMES] = ""


class InstalledController(Typed):
    """The controller, which keeps the cluster's addresses in order. Of several copies one works.

    `name`: of its Deployment, account and roles; an operator's ClusterRole too.
    """

    enabled: bool = True
    name: Label = "kube-rdma-controller"
    replicas: Replicas = 2
    resources: Object = Field(default_factory=dict)


class InstalledRoles(Typed):
    """ClusterRoles that an administrator may bind people to: kube-rdma-view, kube-rdma-verify and
    kube-rdma-bandwidth-check.

    `install`: false for a second release in a cluster, for they are called the same in each.
    """

    install: bool = True


class InstalledPool(Typed):
    """A pool of addresses; see docs/ip.md. Helm makes it once and never changes it."""

    name: Label = Field(examples=["rdma"])
    spec: IPPoolSpec = Field(examples=[{"ranges": [{"subnet": "10.0.0.0/24"}]}])


class InstalledDefinitions(Typed):
    """Definitions of resources. Uninstalling keeps them.

    `networkAttachmentDefinitions` is another project's, which Multus brings too.
    """

    install: bool = True
    network_attachment_definitions: bool = False


class PodPolicies(Typed):
    """Policies for pods that ask for shares; see docs/admission.md.

    `check` refuses and warns; `complete` adds what is missing, from Kubernetes 1.36 on. Lists are
    texts with commas, for they become parts of expressions.
    """

    check: bool = True
    complete: bool = True
    share_resources: Annotated[str, _RESOURCES] = ""
    mgpu_resources: Annotated[str, _RESOURCES] = ""
    gpu_resources: Annotated[str, _RESOURCES] = ""
    vepfs_drivers: Annotated[str, _NAMES] = ""
    vepfs_storage_classes: Annotated[str, _NAMES] = ""
    host_network_resources: Annotated[str, _RESOURCES] = ""
    shm_size: Annotated[str, _SIZE] = "8Gi"


# What a webhook with a certificate of its own does not have; rules/install/webhook says it.
_GIVEN = ("secret", "caBundle", "injectCaFrom")


class InstalledWebhook(Typed):
    """The admission webhook in the controller, by the same rules; see docs/admission.md.

    `certificate`: `own` is made and renewed by the controller. Else `secret`: of type
    kubernetes.io/tls, for kube-rdma-admission.NAMESPACE.svc. Without both: no webhook.
    `caBundle`: its authority, PEM in base64. `injectCaFrom`: NAMESPACE/NAME of cert-manager's
    Certificate, which writes the authority instead.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"certificate": {"const": "own"}}, "required": ["certificate"]},
            "then": {"properties": {name: {"const": ""} for name in _GIVEN}},
        }
    )

    certificate: Literal["", "own"] = ""
    secret: Annotated[str, _OBJECT] = ""
    ca_bundle: Annotated[str, _BASE64] = ""
    inject_ca_from: Annotated[str, _CERTIFICATE] = ""


class InstalledPolicy(Typed):
    """Admission policies of the API server, from Kubernetes 1.30 on.

    `install`: the one that holds each agent to its own node.
    """

    install: bool = True
    pods: PodPolicies = PodPolicies()
    webhook: InstalledWebhook = InstalledWebhook()


class InstalledMetrics(Typed):
    """What Prometheus gets of the agents; see docs/metrics.md.

    `port` of every agent, on its node's own address; 0: nobody is answered. `names`: whose names
    counters of ports have. `podMonitor`, `rules` and `labels` are for the Prometheus operator,
    `dashboards` for Grafana's sidecar.
    """

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    names: Literal["node-exporter", "vke", "none"] = "node-exporter"
    pod_monitor: bool = False
    rules: bool = False
    dashboards: bool = False
    labels: dict[str, str] = Field(default_factory=dict, examples=[{"release": "prometheus"}])


class HostFolders(Typed):
    """Where the nodes have the kubelet, CNI and the runtime's socket, if not where most have."""

    kubelet: Folder = "/var/lib/kubelet"
    cni_conf: Folder = "/etc/cni/net.d"
    cni_binaries: Folder = "/opt/cni/bin"
    runtime: Folder = "/run/containerd"


class Installation(Typed):
    """All values of an installation. A preset has the names and habits of a seed's document."""

    preset: Literal["ack", "vke", "scc", "nvidia", "nvidia-operator", "ib"]
    distribution: Literal["kubernetes", "gke", "k3s", "rke2", "openshift"] = "kubernetes"
    image: InstalledImage = InstalledImage()
    namespace: InstalledNamespace = InstalledNamespace()
    agent: InstalledAgent = InstalledAgent()
    controller: InstalledController = InstalledController()
    roles: InstalledRoles = InstalledRoles()
    pools: Many[InstalledPool] = ()
    crds: InstalledDefinitions = InstalledDefinitions()
    admission: InstalledPolicy = InstalledPolicy()
    metrics: InstalledMetrics = InstalledMetrics()
    host: HostFolders = HostFolders()


def load(document: Document) -> Mapping[str, Any]:
    """The values that the document gives; raise Refused with all of its faults."""
    validate(Installation, document)
    assert isinstance(document.value, dict)
    return document.value


def schema() -> str:
    """The JSON Schema of the values as Helm wants it, which adds a value `global` of its own."""
    made = untitled(Installation)
    made["properties"]["global"] = {"type": "object"}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | _bare(made), indent=2) + "\n"


def _bare(node: Any) -> Any:
    """A schema without defaults, which are a preset's, and without null, which is no value."""
    if isinstance(node, list):
        return [_bare(value) for value in node]
    if not isinstance(node, dict):
        return node
    choices = [value for value in node.get("anyOf", ()) if value != {"type": "null"}]
    if len(choices) == 1:
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return _bare({**choices[0], **rest})
    return {
        key: " ".join(value.split()) if key == "description" else _bare(value)
        for key, value in node.items()
        if key != "default"
    }
