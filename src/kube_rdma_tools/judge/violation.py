"""A violation: a fault of an object of an installation in a kind of cluster, and a remedy."""

from __future__ import annotations

from kube_base.frozen import Frozen


class Violation(Frozen, order=True):
    """One breach of one rule; `rule` is its name in the table of rules, which puts it in.

    `where` is kind and name, such as Deployment/kube-rdma-controller. Where no container is to
    blame, `container` is empty.
    """

    where: str
    container: str
    field: str
    problem: str
    remedy: str
    rule: str = ""
