"""What devices of kube-rdma's driver are called in ResourceSlices, and so in claims.

A name has to last: a claim that was allocated keeps it, over restarts and reboots. So it comes from
the identity of a card and not from what the kernel calls the card's devices and interfaces.
"""

from __future__ import annotations

import hashlib
import re

from kube_rdma.model.card import Card
from kube_rdma.model.pools.pool import Pool

LONGEST = 63  # of a DNS label, which the name of a device has to be (resource.k8s.io/v1)
_DIGEST = 8


def device_name(pool: Pool, card: Card | None) -> str:
    """The device of a card, such as ``0000-1a-00-0``; without a card that of the whole pool."""
    return _label(card.id if card else pool.spec.resource)


def _label(text: str) -> str:
    """A DNS label out of a name; of one that is too long a digest tells it from others."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if len(label) <= LONGEST:
        return label
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{label[: LONGEST - _DIGEST - 1].rstrip('-')}-{digest}"
