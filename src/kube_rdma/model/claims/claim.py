"""What a ResourceClaim asks for, and what claims hold.

adapters/cluster/kinds/claim_objects reads it, claims/rules/verdicts judges it. Fields are those of
resource.k8s.io/v1 (k8s.io/api v0.36.3, resource/v1/types.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from kube_base.frozen import Frozen
from kube_rdma.model.claims.device import SliceDevice


class DeviceToleration(Frozen):
    """A taint of devices that a request takes; an empty key or effect stands for all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ClaimRequest(Frozen):
    """One request, or one of the choices of `firstAvailable`: its `name` is then parent/choice."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()  # in CEL
    every: bool = False  # allocationMode All
    count: int = 1
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, Fraction] = {}


class RequestChoices(Frozen):
    """A request as the claim has it: one way to meet it, or several, the best first."""

    name: str
    choices: tuple[ClaimRequest, ...]


class ClaimConstraint(Frozen):
    """What the devices of the named `requests`, of all if none is named, share or differ in."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class AllocationResult(Frozen):
    """A device of an allocation; `share` tells apart those who hold a shared one."""

    device: SliceDevice
    request: str = ""
    admin: bool = False
    share: str | None = None
    capacity: Mapping[str, Fraction] = {}


class Claim(Frozen):
    """A ResourceClaim; `held` is None while it is not allocated."""

    namespace: str
    name: str
    requests: tuple[RequestChoices, ...] = ()
    constraints: tuple[ClaimConstraint, ...] = ()
    held: tuple[AllocationResult, ...] | None = None
    reserved_for: tuple[str, ...] = ()  # pod/NAME


class DeviceClass(Frozen):
    """What every request of the class asks of a device beside its own selectors.

    `resource` is the extended resource that it stands for, empty for none.
    """

    name: str
    selectors: tuple[str, ...] = ()
    resource: str = ""


class ClaimNode(Frozen):
    """A node, as far as slices choose it."""

    name: str
    labels: Mapping[str, str] = {}
