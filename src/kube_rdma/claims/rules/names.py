"""Names cards and pools as devices of claims, and the slices that list them.

claims/rules/shape publishes the names and claims/rules/prepare looks them up: a name has to lead
back to the card, on this node and after a restart. A name is a DNS label
(pkg/apis/resource/validation: validateDeviceName).
"""

from __future__ import annotations

import hashlib
import re

from kube_rdma.model.card import Card
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.pools import Pool

_LABEL, _SUBDOMAIN = 63, 253  # characters
_DIGEST = 8
_SLOT = re.compile(r"(.+)-s([0-9]+)")
_OTHER = re.compile(r"[^a-z0-9]+")


def device_name(pool: Pool, card: Card | None) -> str:
    """Return the name of a card's device, or of the pool's if its shares stand for the pool (None).

    ``0000-1a-00-0`` by the PCI address, ``rxe0-eth0`` of a soft device, ``rdma-hca`` of a pool.
    """
    text = card.id if card else pool.spec.resource
    plain = _OTHER.sub("-", text.lower()).strip("-") or "device"
    if len(plain) <= _LABEL:
        return plain
    return f"{plain[: _LABEL - _DIGEST - 1].rstrip('-')}-{_digest(text)}"  # of all of it


def slot_name(name: str, slot: int) -> str:
    """Return the name of a share that is a device, or of a part: ``0000-1a-00-0-s3``."""
    end = f"-s{slot}"
    return _short(name, _LABEL - len(end)) + end


def slot_of(name: str) -> tuple[str, int] | None:
    """Return device and number of a name that slot_name made; a long device's is cut there."""
    match = _SLOT.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def slice_name(number: int, node: str) -> str:
    """Return the name of a slice of a node's pool.

    The scheduler takes slices in the order of their names (sortSlicesByName of k8s.io/dynamic-
    resource-allocation/structured), so the number comes first.
    """
    return _short(f"{number:03}-{DRIVER}-{node}", _SUBDOMAIN)


def _short(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    return f"{name[: most - _DIGEST - 1].rstrip('-.')}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
