"""The objects of whereabouts at the API server, as in its pkg/api (v1alpha1); read only.

kube_rdma_whereabouts/plan interprets them.
"""

from __future__ import annotations

import msgspec

from kube_client.kinds import NOTHING, ObjectCodec, ObjectKind


class Allocation(msgspec.Struct, frozen=True):
    """One allocated address: the sandbox, ``namespace/pod`` and the interface that have it."""

    id: str = ""
    podref: str = ""
    ifname: str = ""


class WhereaboutsPoolSpec(msgspec.Struct, frozen=True):
    """The range of a whereabouts pool, and its allocations by offset from that range's address."""

    range: str = ""
    allocations: dict[str, Allocation] = {}


class ReservationSpec(msgspec.Struct, frozen=True):
    """The owner of a reserved address, which is in the object's name, such as ``10.0.0.5``."""

    podref: str = ""
    ifname: str = ""
    containerid: str = ""


POOL = ObjectKind(
    "whereabouts.cni.cncf.io",
    "v1alpha1",
    "IPPool",
    "ippools",
    namespaced=True,
    spec=ObjectCodec.of(WhereaboutsPoolSpec, writes=False),
    status=NOTHING,
)
RESERVATION = ObjectKind(
    "whereabouts.cni.cncf.io",
    "v1alpha1",
    "OverlappingRangeIPReservation",
    "overlappingrangeipreservations",
    namespaced=True,
    spec=ObjectCodec.of(ReservationSpec, writes=False),
    status=NOTHING,
)
