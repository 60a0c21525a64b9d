"""The kinds that an API server has: by the names that kubectl takes, and by a document's fields.

The lab reads and creates objects without kubectl (reading.py, creating.py), which begins with the
same discovery.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kube_rdma_lab.api_client import ApiClient

# Every kind of a group in one answer (KEP-3352, stable since 1.30).
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class UnknownKindError(Exception):
    """The error for a kind that the API server does not have."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind's place in the API: path of its version, plural, and whether it has namespaces."""

    path: str  # /apis/apps/v1
    plural: str
    namespaced: bool

    def at(self, namespace: str, name: str = "") -> str:
        """Return the API path of an object, or of all if `name` is ""; namespace "" means all."""
        parts = [self.path]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *([name] if name else [])])


class Kinds:
    """The kinds of one API server, which are read again when an unknown one is asked for.

    Methods raise UnknownKindError if it is unknown even then, and Unavailable if the server does
    not answer.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._by_name: dict[str, Kind] = {}

    def called(self, word: str) -> Kind:
        """Return the kind that a lower-case word names, such as pods, pod, po, daemonsets.apps."""
        return self._named(word)

    def of(self, document: dict[str, Any]) -> Kind:
        """Return the kind of a document, in the API version that the document names."""
        return self._named(f"{document['apiVersion']} {document['kind']}")

    def _named(self, name: str) -> Kind:
        if name not in self._by_name:
            self._by_name = dict(self._served())
        if name not in self._by_name:
            raise UnknownKindError(name)
        return self._by_name[name]

    def _served(self) -> Iterator[tuple[str, Kind]]:
        """Yield every name of each kind; of equal names, the one listed first comes last."""
        for root in ("/apis", "/api"):
            document = self._client.document(root, DISCOVERY) or {"items": []}
            for group in reversed(document["items"]):
                name = group["metadata"].get("name", "")
                for version in reversed(group["versions"]):
                    kind_version = "/".join(filter(None, (name, version["version"])))
                    for resource in version.get("resources", ()):
                        namespaced = resource["scope"] == "Namespaced"
                        kind = Kind(f"{root}/{kind_version}", resource["resource"], namespaced)
                        yield from ((word, kind) for word in _words(resource, name))
                        yield f"{kind_version} {resource['responseKind']['kind']}", kind


def _words(resource: dict[str, Any], group: str) -> Iterator[str]:
    """Yield the names of a kind in kubectl: plural, singular, short names, also with its group."""
    singular = resource.get("singularResource") or resource["responseKind"]["kind"].lower()
    for word in (resource["resource"], singular, *resource.get("shortNames", ())):
        yield word
        if group:
            yield f"{word}.{group}"
