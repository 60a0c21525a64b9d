"""What is offered to the kubelet: a Pool of Shares, and what a container got: a Grant.

The few values that cross between neighbours; see docs/decisions for `bind`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

ShareId = NewType("ShareId", str)  # the device id that the kubelet sees


class Bind(StrEnum):
    """What one share stands for: the pool (every card in it) or one card."""

    POOL = "pool"
    PER_CARD = "per-card"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool as it is wished for: which resource, how many shares, of which cards.

    `source` is where the wish was written (file, line), for messages.
    """

    resource: str  # extended resource name, rdma/hca
    shares: int  # for bind=pool: of the whole pool
    bind: Bind
    source: str


@dataclass(frozen=True, slots=True)
class Share:
    """One unit that the kubelet can give away."""

    id: ShareId
    healthy: bool
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as it is: the wish met with one Survey."""

    spec: PoolSpec
    shares: tuple[Share, ...]
    devices: tuple[str, ...]  # names of its RDMA devices
    char_paths: tuple[str, ...]  # what a container that holds a share gets, sorted, no doubles


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container holds: shares of one pool and the device nodes that come with them."""

    resource: str
    shares: tuple[ShareId, ...]
    char_paths: tuple[str, ...]
