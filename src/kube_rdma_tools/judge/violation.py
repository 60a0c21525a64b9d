"""A violation: a fault of an object of an installation in a kind of cluster, and a remedy."""

from __future__ import annotations

from kube_base.frozen import Frozen


class Violation(Frozen, order=True):
    """A violation of a rule by a field of an object, with its problem and remedy.

    `judge` sets `rule` later. `where` is kind and name of the object, such as
    Deployment/kube-rdma-controller. `container` is empty if the field is in none.
    """

    where: str
    container: str
    field: str
    problem: str
    remedy: str
    rule: str = ""
