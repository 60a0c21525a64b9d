"""Finds out in which dialect a configuration is written, and reads it; reads labels of nodes too.

Programs come here with the bytes of a file or of a ConfigMap and get a Config, whatever the format.
A dialect is recognized by one field of its top level.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from kube_base.errors import Refused
from kube_base.frozen import Frozen
from kube_rdma.lib.text.document import Document, shown
from kube_rdma.lib.text.faults import near, no_fields
from kube_rdma.lib.text.reader import read
from kube_rdma.lib.text.typed import Config, Typed
from kube_rdma.model.pools import Mode, PoolSpec, Serving


class Dialect(Frozen):
    """A configuration format: the field that identifies it, its author, its module and its model.

    A module is imported when a document needs it, for a node reads one format and models are slow
    to make.
    """

    key: str
    of: str
    module: str
    name: str

    @property
    def model(self) -> type[Typed]:
        """Return the Pydantic model of the dialect's documents."""
        made: type[Typed] = getattr(self.imported, self.name)
        return made

    @property
    def imported(self) -> Any:
        """Import and return the dialect's module, whose `load` makes a Config of a document."""
        return import_module(f"kube_rdma.pools.documents.{self.module}")


DIALECTS: Mapping[str, Dialect] = {
    "hca": Dialect("mode", "SCC and the first RDMA device plugins", "hca", "HcaConfig"),
    "config-list": Dialect(
        "configList", "the shared RDMA device plugin", "config_list", "ConfigList"
    ),
    "resource-list": Dialect(
        "resourceList", "the SR-IOV network device plugin", "resource_list", "ResourceList"
    ),
    "node-policy": Dialect("kind", "kube-rdma itself", "node_policy", "NodePolicy"),
}

# Documents that people take for a configuration, with a remedy that names the right one.
_OTHERS: Mapping[str, tuple[str, str]] = {
    "ConfigMap": (
        "the ConfigMap, not the configuration in it",
        "Give the text of its data, such as that of config.json",
    ),
    "NicClusterPolicy": (
        "the policy of NVIDIA's Network Operator, which installs its device plugin",
        "Give the text in spec.rdmaSharedDevicePlugin.config, or in that of another plugin",
    ),
    "SriovNetworkNodePolicy": (
        "a policy of the SR-IOV Network Operator",
        'Write a NodePolicy: its numVfs is "virtualFunctions" there, its resourceName a pool',
    ),
    "NetworkAttachmentDefinition": (
        "a network of pods, which no configuration names",
        "Apply it to the cluster",
    ),
    "IPPool": ("a pool of addresses, which no configuration names", "Apply it to the cluster"),
}
_OWN_GROUP = "kube-rdma.io/"
_BY_KEY = {dialect.key: dialect for dialect in DIALECTS.values()}
_START = 'Start with "mode": "hca", "configList": […], "resourceList": […] or "kind": "NodePolicy"'


def parse(data: bytes, source: str) -> Config:
    """Parse a configuration document in any dialect; `source` names it in messages.

    Raise Refused with all of its faults.
    """
    return of_document(read(data, source))


def of_document(document: Document) -> Config:
    """Return the configuration that a parsed document describes; raise Refused if it is invalid."""
    meant: Config = _dialect(document).imported.load(document)
    return meant


def is_dialect(value: object) -> bool:
    """Decide whether parsed foreign data, such as a ConfigMap's, is surely a configuration.

    Many programs have a field called mode; in a configuration it stands alone, or beside
    hostNetwork.
    """
    if not isinstance(value, dict):
        return False
    if "kind" in value:
        version = value.get("apiVersion")
        return value["kind"] == "NodePolicy" and str(version).startswith(_OWN_GROUP)
    if "mode" in value:
        return {"mode"} <= value.keys() <= {"mode", "hostNetwork"}
    return bool({"configList", "resourceList"} & value.keys())


def schema(name: str) -> str:
    """Return the JSON Schema of a dialect as text, for editors; raise KeyError if unknown."""
    return schema_text(DIALECTS[name].model)


def schema_text(model: type[Typed]) -> str:
    """Return the JSON Schema of a model as text.

    It keeps the descriptions of fields. The docstrings of nested models are left out, for they are
    for developers.
    """
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    made = untitled(model)
    for part in made.get("$defs", {}).values():
        part.pop("description", None)
    return json.dumps(head | made, indent=2)


def untitled(model: type[Typed]) -> dict[str, Any]:
    """Return the JSON Schema of a model, without the titles that Pydantic makes of field names."""
    return model.model_json_schema(schema_generator=_WithoutTitles)


class _WithoutTitles(GenerateJsonSchema):
    """A schema generator that omits titles, which Pydantic would make of field names."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _dialect(document: Document) -> Dialect:
    value = document.value
    if not isinstance(value, dict):
        raise no_fields(document, _START)
    _refuse_another_kind(document, value)
    given = [key for key in value if key in _BY_KEY]
    if len(given) > 1:
        first, *others = given
        remedy = f"Keep one of them, {first} is in line {document.keys[(first,)].line}"
        faults = []
        for other in others:
            problem = f"{first} and {other} begin two formats of configuration"
            faults.append(Refused(problem, remedy=remedy, where=document.where((other,), key=True)))
        raise Refused.all(faults)
    meant = given or list(filter(None, (near(key, list(_BY_KEY)) for key in value)))
    if not meant:
        problem = "no field says which format of configuration this is"
        raise Refused(problem, remedy=_START, where=document.where(()))
    return _BY_KEY[meant[0]]


def _refuse_another_kind(document: Document, value: Mapping[str, Any]) -> None:
    """Refuse a manifest of another kind by naming that kind, not by all fields it lacks."""
    kind, group = value.get("kind"), value.get("apiVersion", "")
    if not isinstance(kind, str) or not isinstance(group, str):
        return
    if kind in _OTHERS:
        what, remedy = _OTHERS[kind]
    elif group and kind != "NodePolicy" and not group.startswith(_OWN_GROUP):
        what, remedy = f"a {kind} of {group}, and no configuration of kube-rdma", _START
    else:
        return
    raise Refused(f"this is {what}", remedy=remedy, where=document.where(("kind",)))


# The node label ``vke.node.rdma.mode``: Volcengine's way to ask for one pool of a node.

LABEL = "vke.node.rdma.mode"
LABEL_RESOURCE = "vke.volcengine.com/rdma"

_MODES = (Mode.EXCLUSIVE, Mode.SHARED, Mode.SHARED_MULTI)


def label_pools(value: str | None) -> tuple[PoolSpec, ...]:
    """Return the pool that the label's `value` asks for; none without the label.

    Raise Refused for a value that is not a mode.
    """
    if value is None:
        return ()
    for mode in _MODES:
        if value == mode:
            return (PoolSpec(LABEL_RESOURCE, mode, source=f"label {LABEL}"),)
    meant = near(value, _MODES)
    raise Refused(
        f"{shown(value)} is not a mode of nodes",
        remedy=(f"Did you mean {shown(meant)}? " if meant else "")
        + f"Label the node with one of {', '.join(_MODES)}",
        where=f"label {LABEL}",
    )


# The node label ``kube-rdma.io/serve``: claims or shares for the pools of a node.

SERVE_LABEL = "kube-rdma.io/serve"


def label_serving(value: str | None, *, claims: bool) -> Serving:
    """Return the Serving that the label's `value` asks for: PLUGIN where the node lacks the label.

    Raise Refused for an unknown value, and for claims where the agent serves none.
    """
    if value is None or value == Serving.PLUGIN:
        return Serving.PLUGIN
    if value == Serving.CLAIMS and claims:
        return Serving.CLAIMS
    if value == Serving.CLAIMS:
        problem, first = (
            "this agent does not serve claims",
            "Install it with claims.enabled=true, or ",
        )
    else:
        problem, first = f"{shown(value)} is no way to serve cards", ""
    ways = f"label the node with {SERVE_LABEL}=plugin" + (
        "" if first else f" or {SERVE_LABEL}=claims"
    )
    remedy = f"{first}{ways}, or remove the label"
    raise Refused(problem, remedy=remedy[0].upper() + remedy[1:], where=f"label {SERVE_LABEL}")
