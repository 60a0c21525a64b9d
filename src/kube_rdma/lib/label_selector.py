"""Reads label selectors as people write them for `kubectl -l`, and judges labels by them.

Annotations of Services (names/rules) and fields of policies (operator/documents) have such texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kube_base.frozen import Frozen

_COMMA = re.compile(r",(?![^(]*\))")  # not those inside of brackets
_WORD = r"[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9][-.a-z0-9]{{0,252}}/)?{_WORD}"
_VALUE = re.compile(f"(?:{_WORD})?", re.ASCII)
_TERM = re.compile(
    rf"!\s*(?P<absent>{_KEY})|(?P<key>{_KEY})"
    r"(?:\s*(?P<is>==?|!=)\s*(?P<value>[^\s()]*)|\s+(?P<in>in|notin)\s*\((?P<values>[^()]*)\))?",
    re.ASCII,
)


class LabelTerm(Frozen):
    """One term of a label selector; without values it is about the key alone."""

    key: str
    values: frozenset[str] | None = None
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the requirement, as `kubectl -l` judges it."""
        among = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return among != self.negated


def label_terms(text: str) -> tuple[LabelTerm, ...]:
    """Return the terms of a label selector; none for an empty or invalid text."""
    found: list[LabelTerm] = []
    for match in (_TERM.fullmatch(term.strip()) for term in _COMMA.split(text)):
        if match is None:
            return ()
        listed = match["value"] if match["is"] else match["values"]
        values = None if listed is None else frozenset(one.strip() for one in listed.split(","))
        if not all(map(_VALUE.fullmatch, values or ())):
            return ()
        negated = match["absent"] or match["is"] == "!=" or match["in"] == "notin"
        found.append(LabelTerm(match["absent"] or match["key"], values, bool(negated)))
    return tuple(found)
