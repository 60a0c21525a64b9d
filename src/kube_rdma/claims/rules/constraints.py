"""What devices of a claim have to share or to differ in, while the devices are chosen.

Part of claims/rules/claim_search. As k8s.io/dynamic-resource-allocation v0.36.3 has it,
structured/internal/incubating/allocator_incubating.go (match) and constraint.go (distinct). The
latter remembers one value for each request: of three devices of one request the third is compared
with the second alone, and a device that is taken back takes the value of its request along.
"""

from __future__ import annotations

from kube_rdma.model.claims.claim import ClaimConstraint, ClaimRequest
from kube_rdma.model.claims.listed import AttributeValue, ListedDevice, Version


class ConstraintState:
    """One constraint, with the values of the devices that are chosen."""

    def __init__(self, constraint: ClaimConstraint) -> None:
        self.constraint = constraint
        self._values: dict[str, AttributeValue] = {}  # by request; of a match one without a name
        self._count = 0

    def add(self, request: ClaimRequest, driver: str, device: ListedDevice) -> str:
        """Take a device; if it may not be, say why."""
        if not self._concerns(request):
            return ""
        name = self.constraint.attribute
        value = attribute(driver, device, name)
        text = self._against(name, value)
        if text:
            return text
        if self.constraint.distinct:
            self._values[_base(request)] = value
        elif not self._count:
            self._values[""] = value
        self._count += 1
        return ""

    def remove(self, request: ClaimRequest) -> None:
        """The choice of a device is taken back."""
        if not self._concerns(request):
            return
        self._count -= 1
        if self.constraint.distinct:
            self._values.pop(_base(request), None)

    def copied(self) -> ConstraintState:
        """Another one with the same devices."""
        other = ConstraintState(self.constraint)
        other._values, other._count = dict(self._values), self._count
        return other

    def _against(self, name: str, value: AttributeValue) -> str:
        if value is None:
            return f"it has no attribute {name}"
        others = self._values.values() if self._count else ()
        if self.constraint.distinct:
            if any(_same(value, one) for one in others):
                return f"{name} is {_shown(value)}, as of a device chosen before"
            return ""
        other = next((one for one in others if not _same(value, one)), None)
        if other is None:
            return ""
        return f"{name} is {_shown(value)}, of the device chosen before {_shown(other)}"

    def _concerns(self, request: ClaimRequest) -> bool:
        names = self.constraint.requests
        return not names or request.name in names or _base(request) in names


def attribute(driver: str, device: ListedDevice, name: str) -> AttributeValue:
    """An attribute by its full name; the driver's own stand in its slices without a domain."""
    if name in device.attributes:
        return device.attributes[name]
    domain, slash, bare = name.partition("/")
    return device.attributes.get(bare) if slash and domain == driver else None


def _base(request: ClaimRequest) -> str:
    return request.name.partition("/")[0]


def _same(left: AttributeValue, right: AttributeValue) -> bool:
    return type(left) is type(right) and left == right


def _shown(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.text if isinstance(value, Version) else str(value)
