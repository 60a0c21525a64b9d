"""How much of a device's capacities a request takes, and whether that much is left.

Called by claims/rules/claim_search. As k8s.io/dynamic-resource-allocation v0.36.3 has it,
structured/internal/incubating/consumable_capacity.go: what a request does not name is taken by
the capacity's default, else as a whole, also of devices that nobody shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from kube_rdma.model.claims.listed import CapacityPolicy, ListedCapacity
from kube_rdma.model.claims.verdict import Objection, Reason

Amounts = Mapping[str, Fraction]
_NOTHING: Amounts = {}


def taken(capacities: Mapping[str, ListedCapacity], asked: Amounts) -> dict[str, Fraction]:
    """What a request takes of each capacity of a device."""
    return {name: _taken(asked.get(name), one) for name, one in capacities.items()}


def objection(
    capacities: Mapping[str, ListedCapacity],
    asked: Amounts,
    used: Amounts = _NOTHING,
    chosen: Amounts = _NOTHING,
) -> Objection | None:
    """What is against a device: `used` is what others hold of it, `chosen` this claim already."""
    missing = sorted(set(asked) - set(capacities))
    if missing:
        return Objection(Reason.CAPACITY_UNKNOWN, f"it has no capacity {missing[0]}")
    for name, capacity in sorted(capacities.items()):
        amount = _taken(asked.get(name), capacity)
        if _breaks(amount, capacity.policy):
            text = f"{shown(amount)} of {name} is not among the amounts that it allows"
            return Objection(Reason.CAPACITY, text)
        left = capacity.value - used.get(name, 0) - chosen.get(name, 0)
        if amount > left:
            text = f"{shown(amount)} of {name} is wanted, {shown(left)} is left"
            return Objection(Reason.CAPACITY, f"{text} of {shown(capacity.value)}")
    return None


def shown(amount: Fraction) -> str:
    """A number as people write it, the shortest way: 400G, 16, 40Gi."""
    plain = str(amount) if amount.denominator == 1 else f"{float(amount):g}"
    texts = (f"{amount // unit}{suffix}" for suffix, unit in _UNITS if amount % unit == 0)
    return min((plain, *texts), key=len) if amount else plain


_UNITS = (
    *((suffix, 1000 ** (power + 1)) for power, suffix in enumerate("kMGTPE")),
    *((f"{suffix}i", 1024 ** (power + 1)) for power, suffix in enumerate("KMGTPE")),
)


def _taken(asked: Fraction | None, capacity: ListedCapacity) -> Fraction:
    policy = capacity.policy
    if asked is None:
        default = policy.default if policy else None
        return capacity.value if default is None else default
    if policy is None:
        return asked
    if policy.least is not None:
        return _up_to_step(asked, policy, policy.least)
    return min((one for one in policy.values if asked <= one), default=asked)


def _up_to_step(asked: Fraction, policy: CapacityPolicy, least: Fraction) -> Fraction:
    if asked < least or policy.step is None:
        return max(asked, least)
    step, start = math.ceil(policy.step), math.ceil(least)
    return Fraction(start - (start - math.ceil(asked)) // step * step)


def _breaks(amount: Fraction, policy: CapacityPolicy | None) -> bool:
    """Whether the policy forbids it; the default never is."""
    if policy is None or amount == policy.default:
        return False
    if policy.has_range:
        if policy.most is not None and amount > policy.most:
            return True
        if policy.step is None:
            return False
        offset = math.ceil(amount) - math.ceil(policy.least or 0)
        return offset % math.ceil(policy.step) != 0
    return bool(policy.values) and amount not in policy.values
