"""The door of the configuration: finds out which dialect a text is written in, and reads it.

Programs come here with the bytes of a file or of a ConfigMap and get a Config, whoever's format it
is. A dialect is told by one field of its top level.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic.json_schema import GenerateJsonSchema

from kube_rdma.api import config_list, hca, node_policy, resource_list
from kube_rdma.api.dialect import Config, Typed
from kube_rdma.api.document import Document, read
from kube_rdma.api.faults import near, no_fields
from kube_rdma.model.errors import Refused


@dataclass(frozen=True, slots=True)
class Dialect:
    """One format: the field that tells it, whose format it is, its model and its reader."""

    key: str
    of: str
    model: type[Typed]
    load: Callable[[Document], Config]


DIALECTS: Mapping[str, Dialect] = {
    "hca": Dialect("mode", "SCC and the first RDMA device plugins", hca.HcaConfig, hca.load),
    "config-list": Dialect(
        "configList", "the shared RDMA device plugin", config_list.ConfigList, config_list.load
    ),
    "resource-list": Dialect(
        "resourceList",
        "the SR-IOV network device plugin",
        resource_list.ResourceList,
        resource_list.load,
    ),
    "node-policy": Dialect("kind", "kube-rdma itself", node_policy.NodePolicy, node_policy.load),
}

_BY_KEY = {dialect.key: dialect for dialect in DIALECTS.values()}
_START = 'Start with "mode": "hca", "configList": […], "resourceList": […] or "kind": "NodePolicy"'


def parse(data: bytes, source: str) -> Config:
    """What the configuration `data` means; `source` names it in messages.

    Raise Refused with all of its faults.
    """
    document = read(data, source)
    return _dialect(document).load(document)


def schema(name: str) -> str:
    """The JSON Schema of a dialect as text, for editors; KeyError when there is no such dialect."""
    made = DIALECTS[name].model.model_json_schema(schema_generator=_WithoutTitles)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | made, indent=2)


class _WithoutTitles(GenerateJsonSchema):
    """Pydantic would title each field with its own name, in capitals that it does not have."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _dialect(document: Document) -> Dialect:
    value = document.value
    if not isinstance(value, dict):
        raise no_fields(document, _START)
    if value.get("kind") == "ConfigMap":
        problem = "this is the ConfigMap, not the configuration in it"
        remedy = "Give the text of its data, such as that of config.json"
        raise Refused(problem, remedy=remedy, where=document.where(("kind",)))
    given = [key for key in value if key in _BY_KEY]
    if len(given) > 1:
        first, *others = given
        remedy = f"Keep one of them, {first} is in line {document.keys[(first,)].line}"
        raise Refused.all(
            [
                Refused(
                    f"{first} and {other} begin two formats of configuration",
                    remedy=remedy,
                    where=document.where((other,), key=True),
                )
                for other in others
            ]
        )
    meant = given or list(filter(None, (near(key, list(_BY_KEY)) for key in value)))
    if not meant:
        problem = "no field says which format of configuration this is"
        raise Refused(problem, remedy=_START, where=document.where(()))
    return _BY_KEY[meant[0]]
