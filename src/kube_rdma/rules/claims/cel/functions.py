"""Values and functions of CEL that selectors of devices use.

Kubernetes adds quantities and versions to the language (k8s.io/apiserver v0.36.3,
pkg/cel/library/quantity.go and semverlib.go). Numbers of all kinds compare with each other, values
of other kinds are only ever equal within their kind (cel-spec, doc/langdef.md, "Equality").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from kube_base.frozen import Frozen
from kube_rdma.model.quantity import quantity
from kube_rdma.rules.claims.cel.syntax import NotEvaluated

_INT64 = range(-(2**63), 2**63)
_WHOLE = r"(?:0|[1-9][0-9]*)"
_SEMVER = re.compile(
    rf"({_WHOLE})\.({_WHOLE})\.({_WHOLE})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)

_MOST_VERSION = 256  # characters of a version; an attribute of a device has 64
# What one selector may cost, for whoever evaluates it did not write it.
_MOST_REPEATS, _MOST_SEARCHED = 4, 256  # repeats in a pattern, characters of what it is sought in
_MOST_JOINED = 1 << 16  # characters, or values of a list


class EvaluationError(ValueError):
    """The expression has no value for this device: the scheduler then gives the claim up."""


class Quantity(Frozen):
    """A quantity of Kubernetes."""

    number: Fraction


class Semver(Frozen):
    """A version by its precedence (semver.org 2.0.0, 11): what is built has no part in it."""

    numbers: tuple[int, int, int]
    before: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[object, ...]:
        """What sorts versions: numbers below words, and a version without words above all."""
        words = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in self.before)
        return (self.numbers, not self.before, words)


class Optional(Frozen):
    """What ``.?`` gives: a value, or none."""

    value: object = None
    has: bool = False


def semver(text: str) -> Semver:
    """The version; raise EvaluationError for what is none."""
    match = _SEMVER.fullmatch(text)
    before = tuple(match[4].split(".")) if match and match[4] else ()
    wrong = any(not one or (one.isdigit() and len(one) > 1 and one[0] == "0") for one in before)
    if match is None or wrong or len(text) > _MOST_VERSION:
        raise EvaluationError(f"{text!r:.80} is not a version")
    return Semver((int(match[1]), int(match[2]), int(match[3])), before)


def equal(left: object, right: object) -> bool:
    """Whether two values are equal; those of two kinds never are."""
    if _is_number(left) and _is_number(right):
        return left == right
    if isinstance(left, Semver) and isinstance(right, Semver):
        return left.rank == right.rank
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        raise NotEvaluated("maps are not compared")
    return type(left) is type(right) and left == right


def ordered(left: object, right: object) -> int:
    """-1, 0 or 1; raise EvaluationError for kinds that have no order with each other."""
    if (_is_number(left) and _is_number(right)) or (
        type(left) is type(right) and isinstance(left, str | bool)
    ):
        return (left > right) - (left < right)  # type: ignore[operator,no-any-return]
    raise EvaluationError(f"{kind(left)} and {kind(right)} have no order")


def kind(value: object) -> str:
    """What CEL calls the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "map"
    names = {bool: "bool", int: "int", float: "double", str: "string", tuple: "list"}
    return names.get(type(value), type(value).__name__)


def operated(sign: str, left: object, right: object) -> object:
    """A sum and its like, of two numbers of a kind, or of texts or lists."""
    if sign == "+" and type(left) is type(right) and isinstance(left, str | tuple):
        if len(left) + len(right) > _MOST_JOINED:  # type: ignore[arg-type]  # the line above
            raise NotEvaluated("such a long text or list is not evaluated")
        return left + right  # type: ignore[operator]  # the line above
    if type(left) is not type(right) or not _is_number(left):
        raise EvaluationError(f"no {sign} for {kind(left)} and {kind(right)}")
    return _whole(sign, left, right) if isinstance(left, int) else _floating(sign, left, right)


def method(name: str, target: object, arguments: Sequence[object]) -> object:
    """A method of a value; raise NotEvaluated for one that is not here."""
    for owner, methods in _METHODS:
        if name in methods and isinstance(target, owner):
            return _applied(methods[name], name, (target, *arguments))
    if any(name in methods for _, methods in _METHODS):
        raise EvaluationError(f"{kind(target)} has no {name}()")
    raise NotEvaluated(f"{name}() is not evaluated")


def function(name: str, arguments: Sequence[object]) -> object:
    """A function; raise NotEvaluated for one that is not here."""
    if name not in _FUNCTIONS:
        raise NotEvaluated(f"{name}() is not evaluated")
    return _applied(_FUNCTIONS[name], name, arguments)


def _applied(call: Callable[..., object], name: str, arguments: Sequence[object]) -> object:
    try:
        return call(*arguments)
    except (TypeError, AttributeError) as error:
        raise EvaluationError(f"{name}() does not take these values") from error


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _whole(sign: str, left: object, right: object) -> object:
    if not isinstance(left, int) or not isinstance(right, int):
        raise EvaluationError(f"no {sign} for these values")
    if sign in "/%" and right == 0:
        raise EvaluationError("a division by zero")
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1) if right else 0
    results = {"+": left + right, "-": left - right, "*": left * right, "/": quotient}
    result = results.get(sign, left - quotient * right)
    if result not in _INT64:
        raise EvaluationError("a number is too large")
    return result


def _floating(sign: str, left: object, right: object) -> object:
    if not isinstance(left, float) or not isinstance(right, float) or sign in "/%":
        raise NotEvaluated(f"{sign} of such numbers is not evaluated")
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def _quantity(text: str) -> Quantity:
    try:
        return Quantity(quantity(text))
    except ValueError as error:
        raise EvaluationError(f"{text!r} is not a quantity") from error


def _is(make: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            make(text)
        except EvaluationError:
            return False
        return True

    return check


def _matches(text: str, pattern: str) -> bool:
    """Kubernetes searches in linear time (RE2), Python by trying: a costly pattern is left out."""
    repeats = sum(pattern.count(sign) for sign in "*+?{")
    repeats_group = any(f"){sign}" in pattern for sign in "*+?{")
    if repeats_group or repeats > _MOST_REPEATS or len(text) > _MOST_SEARCHED:
        raise NotEvaluated(f"the pattern {pattern!r:.80} may take too long")
    try:
        return re.search(pattern, text, re.ASCII) is not None
    except re.error as error:
        raise NotEvaluated(f"the pattern {pattern!r} is not understood") from error


def _ascii(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(one) if one.isascii() else one for one in text)


def _compared(left: Semver | Quantity, right: Semver | Quantity) -> int:
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return (left.number > right.number) - (left.number < right.number)
    if isinstance(left, Semver) and isinstance(right, Semver):
        return (left.rank > right.rank) - (left.rank < right.rank)
    raise TypeError


def _as_integer(value: Quantity) -> int:
    if value.number.denominator != 1 or value.number.numerator not in _INT64:
        raise EvaluationError("the quantity is no whole number")
    return value.number.numerator


def _value(optional: Optional) -> object:
    if not optional.has:
        raise EvaluationError("there is no value")
    return optional.value


_ORDER: Mapping[str, Callable[..., object]] = {
    "compareTo": _compared,
    "isLessThan": lambda left, right: _compared(left, right) < 0,
    "isGreaterThan": lambda left, right: _compared(left, right) > 0,
}
_METHODS: tuple[tuple[type, Mapping[str, Callable[..., object]]], ...] = (
    (Quantity, _ORDER),
    (Semver, _ORDER),
    (
        Quantity,
        {
            "asInteger": _as_integer,
            "isInteger": lambda value: value.number.denominator == 1,
            "sign": lambda value: (value.number > 0) - (value.number < 0),
            "asApproximateFloat": lambda value: float(value.number),
        },
    ),
    (
        Semver,
        {
            "major": lambda value: value.numbers[0],
            "minor": lambda value: value.numbers[1],
            "patch": lambda value: value.numbers[2],
        },
    ),
    (
        str,
        {
            "startsWith": str.startswith,
            "endsWith": str.endswith,
            "contains": str.__contains__,
            "matches": _matches,
            "lowerAscii": lambda text: _ascii(text, str.lower),
            "upperAscii": lambda text: _ascii(text, str.upper),
            "size": len,
        },
    ),
    (tuple, {"size": len}),
    (
        Optional,
        {
            "hasValue": lambda optional: optional.has,
            "value": _value,
            "orValue": lambda optional, other: optional.value if optional.has else other,
        },
    ),
)
_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "quantity": _quantity,
    "isQuantity": _is(_quantity),
    "semver": semver,
    "isSemver": _is(semver),
    "size": len,
    "matches": _matches,
}
