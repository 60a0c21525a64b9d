"""A right, a verb on a resource that a role grants; and the names of roles here.

A role's real name begins with the name of its installation (install/rules/release). Here it has its
kind and the rest of the name: ``ClusterRole agent``, ``Role doctor``.
"""

from __future__ import annotations

from kube_base.frozen import Frozen

# The ends of roles' names; one that ends with another stands before it. The operator's roles count
# as the controller's.
_ENDINGS = (
    "aggregate-to-view",
    "aggregate-to-edit",
    "bandwidth-check",
    "retirement-drivers",
    "retirement",
    "controller",
    "operator",
    "admission",
    "doctor",
    "verify",
    "agent",
    "view",
    "top",
)
_SAME = {"operator": "controller"}


class Right(Frozen, order=True):
    """A right that a role grants: one verb on one resource, as ``ippools/status.kube-rdma.io``.

    For a refused request `role` is the account that made it.
    """

    role: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.role}: {self.verb} {self.resource}"


def role_name(kind: str, name: str) -> str:
    """Return the short name of a role of kube-rdma, by the end of its name; "" for another role."""
    for ending in _ENDINGS:
        if name == ending or name.endswith(f"-{ending}"):
            return f"{kind} {_SAME.get(ending, ending)}"
    return ""


def resource_name(group: str, resource: str, subresource: str = "") -> str:
    """Return a resource as kubectl writes it: ``resource/subresource.group``."""
    part = f"{resource}/{subresource}" if subresource else resource
    return f"{part}.{group}" if group else part
