"""A pod as the API server knows it, as far as attaching networks and cards needs it."""

from __future__ import annotations

from kube_base.frozen import Frozen

MIRROR = "kubernetes.io/config.mirror"  # what the kubelet writes at the object of a static pod

OVER = ("Succeeded", "Failed")
"""Phases of pods of which no container runs again."""


class PodState(Frozen):
    """One Pod object. Labels and annotations are sorted by name.

    A pod that was deleted and made anew has the same name and another `uid`.
    """

    namespace: str
    name: str
    uid: str
    annotations: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    host_network: bool = False
    node: str = ""  # empty until it is scheduled
    phase: str = ""  # Pending, Running, Succeeded, Failed, Unknown
    deleting: bool = False  # it was asked to end
    owner: str = ""  # who makes another pod in its place; of a ReplicaSet without its hash
    created: str = ""  # RFC 3339, as the API server wrote it

    @property
    def controlled(self) -> bool:
        """Whether an owner makes another pod in its place (ownerReferences)."""
        return bool(self.owner)

    @property
    def is_over(self) -> bool:
        """Whether no container of it runs again."""
        return self.phase in OVER

    @property
    def is_static(self) -> bool:
        """Whether its manifest is a file of the node; then the object is only its mirror."""
        return MIRROR in dict(self.annotations)

    @property
    def runtime_uid(self) -> str:
        """Its uid as kubelet and runtime know it: that of a static pod is another one than here."""
        return dict(self.annotations).get(MIRROR, self.uid)
