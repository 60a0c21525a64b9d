"""Reads objects as `kubectl get -o json` does, for words that name one kind: without starting it.

Tests ask every third of a second while they wait, and kubectl takes 0.06 s of a processor to begin;
a question takes 0.004. What these words do not cover, or what is not there, kubectl is asked for,
which also says why (cluster.get).
"""

from __future__ import annotations

import argparse
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kube_base.errors import Unavailable
from kube_rdma_lab.api_client import ApiClient

# Every kind of a group in one answer (KEP-3352, stable since 1.30).
KINDS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class UnknownWordsError(Exception):
    """These are words that only kubectl understands."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Where objects of a kind are: at `path`, and in a namespace's part of it if `namespaced`."""

    path: str  # /apis/apps/v1
    plural: str
    namespaced: bool

    def at(self, question: argparse.Namespace, name: str) -> str:
        """Return the path that answers a question."""
        parts = [self.path]
        if self.namespaced and not question.all_namespaces:
            parts += ["namespaces", question.namespace]
        parts += [self.plural, *([name] if name else [])]
        selectors = {"labelSelector": question.selector, "fieldSelector": question.field_selector}
        query = urllib.parse.urlencode({key: value for key, value in selectors.items() if value})
        return "/".join(parts) + (f"?{query}" if query else "")


class Reader:
    """Answers questions to one API server; it learns its kinds from it, and again for a new one."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._kinds: dict[str, Kind] = {}

    def get(self, words: Sequence[str]) -> dict[str, Any] | None:
        """Return an object or a list as kubectl prints it; None: only kubectl can tell."""
        try:
            question = _PARSER.parse_args(words)
            kind, name = self._named(question.things)
            document = self._client.document(kind.at(question, name))
        except (UnknownWordsError, Unavailable):
            return None
        return document and _as_printed(document)

    def _named(self, things: Sequence[str]) -> tuple[Kind, str]:
        word, *names = things[0].split("/") if len(things) == 1 else things
        word, name = word.lower(), names[0] if names else ""
        if len(names) > 1 or "," in word:
            raise UnknownWordsError
        if word not in self._kinds:
            self._kinds = dict(self._served())
        if word not in self._kinds:
            raise UnknownWordsError
        return self._kinds[word], name

    def _served(self) -> Iterator[tuple[str, Kind]]:
        """Yield every word for a kind; the last of the same word is the one that kubectl takes."""
        for root in ("/apis", "/api"):
            document = self._client.document(root, KINDS) or {"items": []}
            for group in reversed(document["items"]):
                name = group["metadata"].get("name", "")
                for version in reversed(group["versions"]):
                    path = "/".join(filter(None, (root, name, version["version"])))
                    for resource in version.get("resources", ()):
                        kind = Kind(path, resource["resource"], resource["scope"] == "Namespaced")
                        yield from ((word, kind) for word in _words(resource, name))


def _words(resource: dict[str, Any], group: str) -> Iterator[str]:
    """Yield what people call a kind: pods, pod, po; daemonsets.apps."""
    singular = resource.get("singularResource") or resource["responseKind"]["kind"].lower()
    for word in (resource["resource"], singular, *resource.get("shortNames", ())):
        yield word
        if group:
            yield f"{word}.{group}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UnknownWordsError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("-l", "--selector")
    parser.add_argument("--field-selector")
    parser.add_argument("things", nargs="+")
    return parser


_PARSER = _parser()


def _as_printed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with what kubectl adds to a list's items, and without what it hides."""
    objects = [document]
    if "items" in document:
        kind = document["kind"].removesuffix("List")
        common = {"apiVersion": document["apiVersion"], "kind": kind}
        objects = document["items"] = [common | fields for fields in document["items"]]
    for fields in objects:
        fields["metadata"].pop("managedFields", None)
    return document
