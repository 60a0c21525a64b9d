"""Reads objects as `kubectl get -o json` does, without starting it, for words that name one kind.

Tests ask every third of a second while they wait, and kubectl takes 0.06 s of a processor to start;
a request takes 0.004. Other words, and objects that are not there, are left to kubectl, which also
says why (cluster.get).
"""

from __future__ import annotations

import argparse
import urllib.parse
from collections.abc import Sequence
from typing import Any, NoReturn

from kube_base.errors import Unavailable
from kube_rdma_lab.api_client import ApiClient
from kube_rdma_lab.kinds import Kinds, UnknownKindError


class UnknownWordsError(Exception):
    """The error for kubectl arguments that only kubectl itself understands."""


class Reader:
    """A client that reads objects of one API server in place of kubectl."""

    def __init__(self, client: ApiClient, kinds: Kinds) -> None:
        self._client = client
        self._kinds = kinds

    def get(self, words: Sequence[str]) -> dict[str, Any] | None:
        """Return what kubectl would print, but for a list's own kind; None if kubectl is needed."""
        try:
            question = _PARSER.parse_args(words)
            document = self._client.document(self._place(question))
        except (UnknownKindError, UnknownWordsError, Unavailable):
            return None
        return document and _as_printed(document)

    def _place(self, question: argparse.Namespace) -> str:
        things = question.things
        word, *names = things[0].split("/") if len(things) == 1 else things
        if len(names) > 1 or "," in word:
            raise UnknownWordsError
        kind = self._kinds.called(word.lower())
        place = kind.at("" if question.all_namespaces else question.namespace, *names)
        selectors = {"labelSelector": question.selector, "fieldSelector": question.field_selector}
        query = urllib.parse.urlencode({key: value for key, value in selectors.items() if value})
        return place + (f"?{query}" if query else "")


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
    """Change a document as kubectl does: add kinds to a list's items, drop managedFields."""
    objects = [document]
    if "items" in document:
        kind = document["kind"].removesuffix("List")
        common = {"apiVersion": document["apiVersion"], "kind": kind}
        objects = document["items"] = [common | fields for fields in document["items"]]
    for fields in objects:
        fields["metadata"].pop("managedFields", None)
    return document
