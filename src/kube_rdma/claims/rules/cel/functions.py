"""Implements the values and functions of CEL that selectors of devices use.

Kubernetes adds quantities and versions to the language (k8s.io/apiserver v0.36.3,
pkg/cel/library/quantity.go and semverlib.go). Numbers of all kinds compare with each other, values
of other kinds are only ever equal within their kind (cel-spec, doc/langdef.md, "Equality").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from operator import add, attrgetter, mul, not_, sub
from string import ascii_lowercase, ascii_uppercase
from types import UnionType
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.claims.rules.cel.syntax import NotEvaluated
from kube_rdma.model.kubernetes import quantity

_INT64 = range(-(2**63), 2**63)
_WHOLE = r"(?:0|[1-9][0-9]*)"
_SEMVER = re.compile(
    rf"({_WHOLE})\.({_WHOLE})\.({_WHOLE})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)

_MOST_VERSION = 256  # characters of a version; an attribute of a device has 64
_OPERATIONS = {"+": add, "-": sub, "*": mul}
_MOST_JOINED = 4096  # characters, or values of a list
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_UPPER = str.maketrans(ascii_lowercase, ascii_uppercase)
# The part of patterns that RE2 and Python read alike. No group is repeated, so no repeat is inside
# of another.
_PATTERN = re.compile(
    r"""(?:\(\?i\))?
    (?:\\[dDsSwWbB] | \\[!-/:-@\[-`{-~]
    |\[\^?(?:[^\[\]\\] | \\[dDsSwW] | \\[!-/:-@\[-`{-~])+\]
    |(?:[*+?] | \{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??(?![*+?{])
    |[()](?![*+?{]) | \(\?: | [^\\\[\](){}*+?])*+""",
    re.VERBOSE,
)
Spend = Callable[[int], None]


class EvaluationError(ValueError):
    """The error of a CEL expression without a value for a device.

    The scheduler then gives up the claim.
    """


class Quantity(Frozen, order=True):
    """A Kubernetes quantity as a value of CEL."""

    number: Fraction


class Semver(Frozen, order=True):
    """A semantic version as a value of CEL, ordered by precedence; build metadata is ignored.

    See semver.org 2.0.0, 11.
    """

    major: int
    minor: int
    patch: int
    final: bool
    before: tuple[tuple[int, int, str], ...]  # numbers below words


class Optional(Frozen):
    """An optional value of CEL, such as the result of ``.?``."""

    value: object = None
    has: bool = False


def semver(text: str) -> Semver:
    """Return the version that a text is; raise EvaluationError for another text."""
    match = _SEMVER.fullmatch(text) if len(text) <= _MOST_VERSION else None
    words = match[4].split(".") if match and match[4] else []
    wrong = any(not one or (one.isdigit() and len(one) > 1 and one[0] == "0") for one in words)
    if match is None or wrong:
        raise EvaluationError(f"{text!r:.80} is not a version")
    before = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in words)
    return Semver(int(match[1]), int(match[2]), int(match[3]), not before, before)


def equal(left: object, right: object, spend: Spend) -> bool:
    """Return whether two CEL values are equal; of different types only numbers can be.

    Raise NotEvaluated for two maps. `spend` may raise NotEvaluated too.
    """
    pairs = [(left, right)]
    while pairs:
        spend(1)
        left, right = pairs.pop()
        if isinstance(left, Optional) and isinstance(right, Optional):
            left, right = (left.has, left.value), (right.has, right.value)
        if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
            pairs += zip(left, right, strict=True)
        elif not _same(left, right):
            return False
    return True


def _same(left: object, right: object) -> bool:
    if _is_number(left) and _is_number(right):
        return left == right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        raise NotEvaluated("maps are not compared")
    return type(left) is type(right) and not isinstance(left, tuple) and left == right


def ordered(left: object, right: object) -> int:
    """Return -1, 0 or 1 for the order of two values; raise EvaluationError if they have none."""
    if (_is_number(left) and _is_number(right)) or (
        type(left) is type(right) and isinstance(left, str | bool | Quantity | Semver)
    ):
        return (left > right) - (left < right)  # type: ignore[operator,no-any-return]
    raise EvaluationError(f"{kind(left)} and {kind(right)} have no order")


def kind(value: object) -> str:
    """Return the name of a value's CEL type; for others, such as null, that of the Python class."""
    names = {bool: "bool", int: "int", float: "double", str: "string", tuple: "list"}
    return "map" if isinstance(value, Mapping) else names.get(type(value), type(value).__name__)


def operated(sign: str, left: Any, right: Any) -> object:
    """Return the result of an arithmetic CEL operator; + also joins texts and lists.

    Raise EvaluationError without a result, NotEvaluated where kube-rdma does not compute it.
    """
    if sign == "+" and type(left) is type(right) and isinstance(left, str | tuple):
        if len(left) + len(right) > _MOST_JOINED:
            raise NotEvaluated("such a long text or list is not evaluated")
        return left + right
    if type(left) is not type(right) or not _is_number(left):
        raise EvaluationError(f"no {sign} for {kind(left)} and {kind(right)}")
    if sign in _OPERATIONS:
        result = _OPERATIONS[sign](left, right)
    elif isinstance(left, float):
        raise NotEvaluated(f"{sign} of such numbers is not evaluated")
    elif right == 0:
        raise EvaluationError("a division by zero")
    else:
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        result = quotient if sign == "/" else left - quotient * right
    if isinstance(result, int) and result not in _INT64:
        raise EvaluationError("a number is too large")
    return result


def called(name: str, values: Sequence[object], spend: Spend) -> object:
    """Return the result of a CEL function, or of a method of the first value.

    Raise NotEvaluated for what kube-rdma does not evaluate, EvaluationError for wrong values.
    """
    named = [(owner, methods[name]) for owner, methods in _METHODS if name in methods]
    if not named or not values:
        raise NotEvaluated(f"{name}() is not evaluated")
    call = next((call for owner, call in named if isinstance(values[0], owner)), None)
    if call is None:
        raise EvaluationError(f"{kind(values[0])} has no {name}()")
    try:
        if name == "matches":
            spend(_most_tries(*values))  # type: ignore[arg-type]  # a TypeError is caught
        return call(*values)
    except (TypeError, AttributeError) as error:
        raise EvaluationError(f"{name}() does not take these values") from error


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(quantity(text))
    except ValueError as error:
        raise EvaluationError(f"{text!r:.80} is not a quantity") from error


def _is(make: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        with suppress(EvaluationError):
            make(text)
            return True
        return False

    return check


def _most_tries(text: str, pattern: str) -> int:
    """Return an upper bound of the steps that Python's regex search may take.

    Each repeat may end at any character, and each choice may go both ways, independent of all
    others.
    """
    repeats, choices = (sum(map(pattern.count, signs)) for signs in ("*+{", "?|("))
    ways: int = (len(text) + 1) ** (repeats + 1) << choices
    return len(pattern) + len(pattern) * ways // 100


def _matches(text: str, pattern: str) -> bool:
    if not _PATTERN.fullmatch(pattern) or "\n" in text:
        raise NotEvaluated(f"the pattern {pattern!r:.80} is not understood")
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except re.error as error:
        raise NotEvaluated(f"the pattern {pattern!r:.80} is not understood") from error


def _as_integer(value: Quantity) -> int:
    if value.number.denominator != 1 or value.number.numerator not in _INT64:
        raise EvaluationError("the quantity is no whole number")
    return value.number.numerator


def _value(optional: Optional) -> object:
    if not optional.has:
        raise EvaluationError("there is no value")
    return optional.value


_METHODS: tuple[tuple[type | UnionType, Mapping[str, Callable[..., object]]], ...] = (
    (
        Quantity | Semver,
        {
            "compareTo": ordered,
            "isLessThan": lambda left, right: ordered(left, right) < 0,
            "isGreaterThan": lambda left, right: ordered(left, right) > 0,
        },
    ),
    (
        Quantity,
        {
            "asInteger": _as_integer,
            "isInteger": lambda value: value.number.denominator == 1,
            "sign": lambda value: (value.number > 0) - (value.number < 0),
            "asApproximateFloat": lambda value: float(value.number),
        },
    ),
    (Semver, {name: attrgetter(name) for name in ("major", "minor", "patch")}),
    (
        str,
        {
            "startsWith": str.startswith,
            "endsWith": str.endswith,
            "contains": str.__contains__,
            "matches": _matches,
            "lowerAscii": lambda text: text.translate(_LOWER),
            "upperAscii": lambda text: text.translate(_UPPER),
            "quantity": _quantity,
            "isQuantity": _is(_quantity),
            "semver": semver,
            "isSemver": _is(semver),
        },
    ),
    (str | tuple | Mapping, {"size": len}),
    (bool, {"!": not_}),
    (int | float, {"negate": lambda value: operated("-", type(value)(), value)}),
    (
        Optional,
        {
            "hasValue": lambda optional: optional.has,
            "value": _value,
            "orValue": lambda optional, other: optional.value if optional.has else other,
        },
    ),
)
