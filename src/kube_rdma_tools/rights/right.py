"""A right, a verb on a resource that a role grants; and the names of roles here.

A role's real name begins with that of its installation (install/rules/release). Here it is called
by what is behind that: ``ClusterRole agent``, ``Role doctor``.
"""

from __future__ import annotations

from kube_base.frozen import Frozen

# What a role's name ends with, the longest first. The operator's roles are the controller's too.
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
    """A right that a role grants: one verb on one resource, ``ippools/status.kube-rdma.io``."""

    role: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.role}: {self.verb} {self.resource}"


def role_name(kind: str, name: str) -> str:
    """Return the short name of one of our roles; "" for a role that is not ours."""
    for ending in _ENDINGS:
        if name == ending or name.endswith(f"-{ending}"):
            return f"{kind} {_SAME.get(ending, ending)}"
    return ""


def resource_name(group: str, resource: str, subresource: str = "") -> str:
    """Return a resource as kubectl writes it: ``resource/subresource.group``."""
    part = f"{resource}/{subresource}" if subresource else resource
    return f"{part}.{group}" if group else part
