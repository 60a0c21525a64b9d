"""Reads the values and the objects of an installation as people write them.

Values are for `kube-rdma render`, `kube-rdma install` and the Helm chart. Each value has a default
of its preset or of all presets (install/rules/presets), so that a file holds only what differs. The
chart's values.schema.json, values.yaml and README.md are made from these models; `check` names the
place of each fault. Objects are Kubernetes manifests in YAML, with marks where values go; `read`
makes blueprints of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import yaml

from kube_rdma.install.documents import values as documents
from kube_rdma.lib.schema import LOOKAROUND
from kube_rdma.lib.text.document import Document
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.typed import Many, Typed
from kube_rdma.model import install
from kube_rdma.pools.documents.config import untitled

_GLOBAL = "global is a value of Helm itself, for all charts of a release. kube-rdma ignores it."


class Installation(Typed):
    """The values of an installation. All of them are optional."""

    preset: Literal[
        "default", "rails", "rdma-ib", "efa", "ack", "vke", "scc", "nvidia", "nvidia-operator", "ib"
    ] = "default"
    """
    preset is the kind of installation. It decides names, the resource that pods ask for, and what
    one share is. default, rails, rdma-ib and efa have names of kube-rdma's own, the others those of
    a platform's document. docs/install.md says which preset is for whom.
    """
    distribution: Literal[
        "kubernetes",
        "gke",
        "k3s",
        "rke2",
        "k0s",
        "microk8s",
        "openshift",
        "bottlerocket",
        "flatcar",
        "talos",
    ] = "kubernetes"
    """
    distribution is the kind of Kubernetes or of its nodes. It decides folders, SELinux type and
    rights. k3s: with its flannel. rke2: RKE2, and k3s with another CNI. gke: adds a quota where the
    chart creates the namespace. openshift: binds the constraint privileged, and names no user.
    kubernetes: all others.
    """
    kubernetes_version: documents.KubernetesVersion = ""
    """
    kubernetesVersion is the version of Kubernetes, in quotes. The chart and render leave out what
    it does not have, such as admission policies before 1.30. Empty: Helm asks the cluster, and
    render writes for the newest. Example: "1.28".
    """
    fullname_override: documents.FullName = ""
    """
    fullnameOverride is what the names of most objects begin with, in place of those of the preset.
    Every release with one of its own can share a namespace and a cluster with others. Set it when
    you install: a change replaces these objects. Example: rdma-a.
    """
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """
    logLevel is the least level of the lines that agents and controllers log. debug adds each
    request to the API server. Agents of a NicClusterPolicy keep info.
    """
    log_format: Literal["text", "json"] = "text"
    """
    logFormat is the form of the lines that agents and controllers log. text: key=value, as logfmt
    has it. json: one object for each line. Agents of a NicClusterPolicy keep text.
    """
    image: documents.InstalledImage = documents.InstalledImage()
    """image is the container image of everything that the chart deploys."""
    namespace: documents.InstalledNamespace = documents.InstalledNamespace()
    """namespace is the namespace of the installation."""
    agent: documents.InstalledAgent = documents.InstalledAgent()
    """
    agent has the settings of the agents. An agent runs on each node and offers the node's cards as
    resources.
    """
    controller: documents.InstalledController = documents.InstalledController()
    """
    controller has the settings of the controller, which works for the whole cluster. It keeps the
    addresses in order, evicts pods that have to restart, and writes the status of objects. With
    preset nvidia-operator it is the operator too.
    """
    labeller: documents.InstalledLabeller = documents.InstalledLabeller()
    """
    labeller is a second DaemonSet, which labels nodes for others that select them. See
    docs/config.md.
    """
    claims: documents.InstalledClaims = documents.InstalledClaims()
    """
    claims has the settings of dynamic resource allocation, by which pods ask for cards with
    ResourceClaims.
    """
    roles: documents.InstalledRoles = documents.InstalledRoles()
    """
    roles are the roles for people. An administrator binds kube-rdma-view, kube-rdma-verify,
    kube-rdma-bandwidth-check and the Role of a doctor; the chart creates no bindings of them. With
    kube-rdma-aggregate-to-view and -edit, view and edit of Kubernetes take in kube-rdma's kinds;
    view takes in NetworkAttachmentDefinitions too.
    """
    pools: Many[documents.InstalledPool] = ()
    """pools lists the IPPools that Helm creates when it installs; an upgrade does not change them.
    Preset vke needs one named rdma for RoCE. Example:
    [{name: rdma, spec: {ranges: [{subnet: 10.0.0.0/24}]}}].
    """
    networks: documents.InstalledNetworks = documents.InstalledNetworks()
    """networks are NetworkAttachmentDefinitions by rail. See docs/networks.md."""
    crds: documents.InstalledDefinitions = documents.InstalledDefinitions()
    """crds are the custom resource definitions (CRDs). Uninstalling keeps them."""
    admission: documents.InstalledPolicy = documents.InstalledPolicy()
    """admission has the settings of what the API server checks of agents and of pods."""
    metrics: documents.InstalledMetrics = documents.InstalledMetrics()
    """metrics has the settings for Prometheus and Grafana. See docs/metrics.md."""
    host: documents.HostFolders = documents.HostFolders()
    """
    host has the folders of the nodes. Set what differs from your distribution, see docs/agent.md.
    """


def check(document: Document) -> None:
    """Raise Refused with all faults of the values that the document gives."""
    validate(Installation, document)


def values() -> tuple[install.ChartValue, ...]:
    """Return a description of every value of an installation, without the presets' defaults."""
    made = _whole()
    return tuple(value for value, _ in _below(made, made["$defs"], ""))


def schema(left_out: Mapping[str, str], decided: Collection[str]) -> str:
    """Return the JSON Schema of the values as Helm wants it, which adds a value `global`.

    `left_out` says by the path of a value what holds where the value is left out. Values whose path
    is in `decided` may be null, for preset or distribution decide their default.
    """
    made = _whole()
    for value, node in _below(made, made["$defs"], ""):
        if value.path in left_out:
            node["description"] = f"{value.sentence} {left_out[value.path]}"
        if value.path in decided:
            node["type"] = [node["type"], "null"]
            if "enum" in node:
                node["enum"] = [*node["enum"], None]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | _bare(made), indent=2) + "\n"


def _whole() -> dict[str, Any]:
    made = untitled(Installation)
    made["properties"]["global"] = {"type": "object", "description": _GLOBAL}
    return made


def _below(
    node: dict[str, Any], parts: dict[str, Any], path: str
) -> Iterator[tuple[install.ChartValue, dict[str, Any]]]:
    """Yield each value that a JSON schema describes, with the value's own schema.

    `parts` has the schemas that others refer to.
    """
    for name, field in node.get("properties", {}).items():
        meant = _meant(field, parts)
        inner = _meant(meant.get("items", {}), parts)
        value = install.ChartValue(
            f"{path}{name}",
            " ".join(field.get("description", "").split()),
            default=field.get("default", install.UNSAID),
            required=name in node.get("required", ()),
            whole="properties" in meant,
        )
        yield value, field
        yield from _below(meant, parts, f"{path}{name}.")
        yield from _below(inner, parts, f"{path}{name}[].")


def _meant(node: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a JSON schema refers to, else the schema itself."""
    reference = node.get("$ref")
    meant: dict[str, Any] = parts[reference.rpartition("/")[2]] if reference else node
    return meant


def _bare(node: Any) -> Any:
    """Return a JSON schema for Helm: without defaults and without null as a choice.

    Presets have the defaults. Patterns that look ahead are left out, for Helm's regular expressions
    cannot look ahead; `render` checks them.
    """
    if isinstance(node, list):
        return [_bare(value) for value in node]
    if not isinstance(node, dict):
        return node
    choices = [value for value in node.get("anyOf", ()) if value != {"type": "null"}]
    if len(choices) == 1:
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return _bare({**choices[0], **rest})
    return {
        key: {name: _bare(field) for name, field in value.items()}
        if key == "properties"  # whose keys are names of fields
        else " ".join(value.split())
        if key == "description"
        else _bare(value)
        for key, value in node.items()
        if key != "default" and not (key == "pattern" and LOOKAROUND.search(str(value)))
    }


# Blueprints as people write them: Kubernetes manifests in YAML, with marks where values go.

_HOLE = re.compile(r"\$\{([\w.]+)\}")
_HELM = "helm.sh/"
_UNINSTALL = ("helm.sh/hook", "pre-delete")


class _MarkLoader(yaml.CSafeLoader):
    """A YAML loader that reads the marks of blueprints as the nodes of model/install."""


def read(text: str) -> tuple[install.Blueprint, ...]:
    """Return the blueprints that the text of a YAML file has, in their order."""
    return tuple(map(_blueprint, yaml.load_all(text, _MarkLoader)))


def _blueprint(document: dict[str, Any]) -> install.Blueprint:
    conditions, over = document.pop("when", ()), document.pop("each", "")
    component = document.pop("component", "")
    metadata = document["metadata"]
    annotations = metadata.get("annotations")
    notes = {}
    if isinstance(annotations, dict):
        notes = {name: text for name, text in annotations.items() if name.startswith(_HELM)}
    if notes:
        rest = {name: text for name, text in annotations.items() if name not in notes}
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        document["metadata"] = metadata | ({"annotations": rest} if rest else {})
    hook = _UNINSTALL in notes.items()
    return install.Blueprint(document, tuple(conditions), over, notes, hook, component)


def _text(reader: _MarkLoader, node: yaml.ScalarNode) -> install.Node:
    parts = _HOLE.split(reader.construct_scalar(node))
    if len(parts) == 1:
        return parts[0]
    pieces = (install.Hole(part) if place % 2 else part for place, part in enumerate(parts))
    joined = tuple(piece for piece in pieces if piece)
    return joined[0] if len(joined) == 1 else install.Joined(joined)


def _when(reader: _MarkLoader, node: yaml.MappingNode) -> install.When:
    branches = _branches(reader, node)
    chosen: Any = branches.pop("else", install.ABSENT)
    for condition, then in reversed(branches.items()):
        chosen = install.When(condition, then, chosen)
    if not isinstance(chosen, install.When):
        raise yaml.constructor.ConstructorError(
            problem="!when has no condition", problem_mark=node.start_mark
        )
    return chosen


def _branches(reader: _MarkLoader, node: yaml.MappingNode) -> dict[str, install.Node]:
    return {str(name): value for name, value in reader.construct_mapping(node, deep=True).items()}


def _unless(reader: _MarkLoader, node: yaml.MappingNode) -> install.When:
    ((condition, value),) = _branches(reader, node).items()
    return install.unless(condition, value)


def _all(reader: _MarkLoader, node: yaml.ScalarNode) -> install.Spread:
    return install.Spread(str(reader.construct_scalar(node)))


_MarkLoader.add_constructor("!all", _all)
_MarkLoader.add_constructor("tag:yaml.org,2002:str", _text)
_MarkLoader.add_constructor("!when", _when)
_MarkLoader.add_constructor("!unless", _unless)
