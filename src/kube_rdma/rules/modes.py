"""THE table: what each mode gives to a container, how many shares it makes and what they mean.

rules/pools and rules/allocation read it and hold no knowledge of a mode themselves, so a further
mode is a further row. The meaning of `hca` is that of the SCC document and of the shared device
plugin: 1000 shares whatever the number of cards, and any share opens every card of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kube_rdma.model.device import CharKind
from kube_rdma.model.pool import Bind, Mode


@dataclass(frozen=True, slots=True)
class ModeRow:
    """One mode. `meaning` is the sentence that people read about it."""

    resource: str  # extended resource name under which the kubelet offers the shares
    shares: int  # of the pool when bind is POOL, of each card when it is PER_CARD
    bind: Bind
    gives: frozenset[CharKind]  # which doors of its cards a container gets
    meaning: str


MODES: Mapping[Mode, ModeRow] = MappingProxyType(
    {
        Mode.HCA: ModeRow(
            resource="rdma/hca",
            shares=1000,
            bind=Bind.POOL,
            gives=frozenset(CharKind),
            meaning="every RDMA card of the node, shared by every container that holds a share",
        ),
    }
)
