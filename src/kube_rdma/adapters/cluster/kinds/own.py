"""The API group of kube-rdma itself, to which all of its own kinds belong."""

from __future__ import annotations

from typing import TypeVar

from kube_client.kinds import ObjectCodec, ObjectKind

S = TypeVar("S")
U = TypeVar("U")


def own_kind(
    kind: str,
    plural: str,
    spec: ObjectCodec[S],
    status: ObjectCodec[U],
    *,
    namespaced: bool = False,
) -> ObjectKind[S, U]:
    """A kind of kube-rdma, in the version that is served."""
    return ObjectKind("kube-rdma.io", "v1alpha1", kind, plural, namespaced, spec, status)
