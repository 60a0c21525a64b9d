"""Selectors of the fake API server, as far as kube-rdma uses them; others are refused."""

from __future__ import annotations

import re

from kube_client.wire import ApiRequest
from kube_rdma_testing.cluster.fields import Document
from kube_rdma_testing.cluster.store import Refusal, ServedResource

_FIELDS = {
    "": ("metadata.name", "metadata.namespace"),
    "pods": ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"),
    # kubernetes pkg/registry/core/event/strategy.go ToSelectableFields
    "events": (
        *("metadata.name", "metadata.namespace", "reason", "reportingComponent", "type"),
        *(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid")),
    ),
    "nodes": ("metadata.name", "spec.unschedulable"),
    "resourceslices": ("metadata.name", "spec.driver", "spec.nodeName"),
}
_TERM = re.compile(r"(!?)([\w./-]+)(?:(==|=|!=)([\w./-]*)|\s+(in|notin)\s+\(([^)]*)\))?")
_COMMA = re.compile(r",(?![^(]*\))")  # not inside of brackets


def matches(request: ApiRequest, resource: ServedResource, document: Document) -> bool:
    """Return whether an object matches a request's namespace and selectors.

    Raise Refusal (400) for a selector that is malformed or not supported.
    """
    meta = document["metadata"]
    query = dict(request.query)
    if request.namespace and meta.get("namespace") != request.namespace:
        return False
    labels = all(_holds(term, meta.get("labels", {})) for term in _terms(query, "labelSelector"))
    selectable = _FIELDS.get(resource.plural, _FIELDS[""])
    values = {name: _value(document, name) for name in selectable}
    for term in _terms(query, "fieldSelector"):
        match = _TERM.fullmatch(term)
        if not match or match[2] not in selectable or not match[3]:
            raise Refusal(400, "BadRequest", f"field label not supported: {term}")
        labels = labels and _holds(term, values)
    return labels


def _terms(query: dict[str, str], name: str) -> list[str]:
    return [term.strip() for term in _COMMA.split(query.get(name, "")) if term]


def _value(document: Document, name: str) -> str:
    part, _, last = name.rpartition(".")
    field_value = (document.get(part, {}) if part else document).get(last, "")
    return str(field_value).lower() if isinstance(field_value, bool) else str(field_value)


def _holds(term: str, values: dict[str, str]) -> bool:
    match = _TERM.fullmatch(term)
    if not match:
        raise Refusal(400, "BadRequest", f"unable to parse requirement: {term}")
    negated, key, operator, value, among, choice = match.groups()
    if operator:
        return (values.get(key) == value) == (operator != "!=")
    if among:
        chosen = {each.strip() for each in choice.split(",")}
        return (values.get(key) in chosen) == (among == "in")
    return (key in values) != bool(negated)
