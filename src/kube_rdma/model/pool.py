"""What is offered to the kubelet: a Pool of Shares, and what a container got: a Grant.

The few values that cross between neighbours: api makes a PoolSpec out of a document, rules/pools
meets it with a Survey, adapters/kubelet offers the Pool, rules/allocation answers with a Grant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from kube_rdma.model.survey import Verdict

ShareId = NewType("ShareId", str)  # the device id that the kubelet sees; it allows 63 characters


class Mode(StrEnum):
    """How cards are given to pods; what each mode means is one row of the table in rules/modes."""

    HCA = "hca"


class Bind(StrEnum):
    """What one share stands for: the pool (every card in it) or one card."""

    POOL = "pool"
    PER_CARD = "per-card"


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A pool as it is wished for; what it leaves unsaid is said by the mode.

    `source` is where the wish was written (file, line), for messages.
    """

    mode: Mode
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
    resource: str  # extended resource name, rdma/hca
    shares: tuple[Share, ...]
    devices: tuple[str, ...]  # names of its RDMA devices
    char_paths: tuple[str, ...]  # what a container that holds a share gets, sorted, no doubles
    unusable: tuple[Verdict, ...] = ()  # those of `devices` that no program can use now


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container holds: shares of one pool, their device nodes and variables."""

    resource: str
    shares: tuple[ShareId, ...]
    char_paths: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
