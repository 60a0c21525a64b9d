"""The Lease of an election at the API server: read, and written only if nobody wrote it since."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_client.errors import Conflict
from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind, Stored, Wanted
from kube_client.objects import Cluster
from kube_rdma.model.election import ElectionRecord


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields of coordination.k8s.io/v1 LeaseSpec that an election uses."""

    holder_identity: str | None = None
    lease_duration_seconds: Annotated[int, msgspec.Meta(lt=1 << 31)] | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


def _decode(data: bytes) -> ElectionRecord:
    spec = decoded(data, _Spec)
    return ElectionRecord(
        spec.holder_identity or "",
        float(spec.lease_duration_seconds or 0),
        spec.acquire_time or "",
        spec.renew_time or "",
        spec.lease_transitions or 0,
    )


def _encode(record: ElectionRecord) -> bytes:
    return msgspec.json.encode(
        _Spec(
            record.holder,
            math.ceil(record.duration),
            record.acquired or None,  # the API server takes no empty time
            record.renewed or None,
            record.transitions,
        )
    )


ELECTION = ObjectKind(
    "coordination.k8s.io",
    "v1",
    "Lease",
    "leases",
    namespaced=True,
    spec=ObjectCodec(_decode, _encode),
    status=NOTHING,
)


class ElectionLease:
    """One Lease. A `write` changes what the `read` before it has shown, and nothing later."""

    def __init__(self, cluster: Cluster, name: str, namespace: str) -> None:
        self.name, self.namespace = name, namespace
        self._cluster = cluster
        self._stored: Stored[ElectionRecord, None] | None = None

    async def read(self) -> ElectionRecord | None:
        """The record now, None when there is none; raises as `Cluster.get`."""
        self._stored = await self._cluster.get(ELECTION, self.name, self.namespace)
        return self._stored.spec if self._stored else None

    async def write(self, record: ElectionRecord) -> bool:
        """Whether it was written; False when somebody was quicker. Raises as `Cluster.replace`."""
        try:
            if self._stored is None:
                wanted = Wanted(self.name, self.namespace, record)
                self._stored = await self._cluster.create(ELECTION, wanted)
            else:
                changed = replace(self._stored, spec=record)
                self._stored = await self._cluster.replace(ELECTION, changed)
        except Conflict:
            return False
        return True
