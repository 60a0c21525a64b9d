"""Rules about typing errors: a pod names what nobody has, and a name that somebody has is near.

They stand beside findings, which judges what is known. Kubernetes takes a pod with such a resource
and leaves it pending. A network of such a name is refused on the node, and nobody reads such an
annotation at all. Names that differ in their number alone are siblings (``rail-0``, ``rail-1``).
They are no typing error, unless a whole row of them is known and lacks this one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher, get_close_matches

from kube_base.natural import natural
from kube_rdma.admission.rules.networks import BLOCKS, NETWORKS
from kube_rdma.admission.rules.shares import PodReview, matches, offered
from kube_rdma.attach.rules.requests import (
    ANNOTATION,
    DEFAULT_NETWORK,
    POD_NETWORKS,
    POD_NETWORKS_DEFINITION,
)
from kube_rdma.model.finding import Finding, Severity

_LIKE = 0.8  # of names; "hca_shared_device_a" is 0.97 of "…devices_a", "efa" 0.33 of "eni"
_NUMBER = re.compile(r"^(.*?)[-_.]*([0-9]+|(?<=[-_.])[a-z])$")
KEYS = (ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION, DEFAULT_NETWORK)
_UNSAID = "default"  # also of pods of files that name no namespace
_ROW = 3  # names that differ in their number alone and make a row
_MOST = 20  # resources or annotations of a pod that are compared


def unknown_resource(review: PodReview) -> Iterator[Finding]:
    """Warn of a resource that is not known, but close to a known name or series of names."""
    names = offered(review.facts)
    others = (*review.settings.gpus, *review.settings.mgpu)
    asks = {
        ask.resource: ask
        for container in review.pod.containers
        for ask in container.asks
        if ask.resource not in names and not matches(ask.resource, others)
    }
    for ask in list(asks.values())[:_MOST]:
        alike = [one for one in names if are_alike(ask.resource, one)]
        if remedy := _meant(ask.resource, alike, names):
            yield Finding.of(
                "unknown-resource",
                ask.path,
                f"no pool, policy or network that is known here names {ask.resource}",
                remedy,
                Severity.WARNING,
            )


def unknown_network(review: PodReview) -> Iterator[Finding]:
    """Warn of an unknown network near a known name or series, or known in another namespace."""
    names = {network.name for network in review.facts.networks}
    for path, asks in ((NETWORKS, review.pod.networks), (BLOCKS, review.pod.blocks or ())):
        for ask in asks[:_MOST]:
            if f"{ask.namespace}/{ask.network}" in names:
                continue
            if ask.by_pod_networks and ask.network == review.settings.block:
                continue  # built in
            space = f"{ask.namespace}/"
            beside = sorted(name.removeprefix(space) for name in names if name.startswith(space))
            known = names.difference(review.facts.placeless)
            away = sorted(one for one in known if one.endswith(f"/{ask.network}"))
            remedy = _meant(ask.network, beside, beside)
            if away and not remedy and not ask.by_pod_networks and ask.namespace != _UNSAID:
                remedy = f"Write {away[0]}, or create {ask.network} in namespace {ask.namespace}"
            problem = f"{ask.source}: no network {ask.namespace}/{ask.network} is known here"
            if remedy:
                yield Finding.of("unknown-network", path, problem, remedy, Severity.WARNING)


def misspelt(keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each key that is nearly one that is read, with the key that was probably meant."""
    for key in sorted(keys)[: _MOST * _MOST]:
        meant = next((one for one in KEYS if are_alike(key, one)), None)
        if meant and key not in KEYS:
            yield key, meant


def unread_annotation(review: PodReview) -> Iterator[Finding]:
    """Warn of an annotation whose name is close to one that is read."""
    for key, meant in misspelt(dict(review.pod.annotations)):
        yield Finding.of(
            "annotation-name",
            ("metadata", "annotations", key),
            "no program reads an annotation of this name",
            f"Did you mean {meant}?",
            Severity.WARNING,
        )


def near(name: str, names: Sequence[str]) -> str | None:
    """Return the one of `names` that was probably meant; None if none is close.

    Names that differ only in the number or letter at their end are not close.
    """
    stem, number = _numbered(name)
    for one in get_close_matches(name, names, n=3, cutoff=_LIKE):
        other_stem, other_number = _numbered(one)
        if stem != other_stem or number == other_number:
            return one
    return None


def _meant(name: str, alike: Sequence[str], names: Collection[str]) -> str:
    """Return a remedy for an unknown name: the probable name, or the known series; else "".

    Three known names of one series count as all of it, so rail-9 beside rail-0 to rail-7 is
    unknown.
    """
    if meant := near(name, alike):
        return f"Did you mean {meant}?"
    stem, number = _numbered(name)
    row = sorted((one for one in names if number and _numbered(one)[0] == stem), key=natural)
    is_beyond = len(row) >= _ROW and name not in row
    return f"Write one of {row[0]} to {row[-1]}" if is_beyond else ""


def are_alike(first: str, second: str) -> bool:
    """Decide whether two names are equal on one side of the slash, and nearly on the other."""
    (prefix, _, name), (other_prefix, _, other_name) = first.partition("/"), second.partition("/")
    if prefix == other_prefix:
        return _is_like(name, other_name)
    return name == other_name and _is_like(prefix, other_prefix)


def _numbered(name: str) -> tuple[str, str]:
    """Return a name in two parts: up to the number or letter at its end, and that end."""
    match = _NUMBER.match(name)
    return (match[1], match[2]) if match else (name, "")


def _is_like(text: str, other: str) -> bool:
    return SequenceMatcher(None, text, other).ratio() >= _LIKE
