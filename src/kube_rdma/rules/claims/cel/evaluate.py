"""Whether a selector takes a device, as the scheduler evaluates it.

Called by rules/claims/verdicts for each device that is not in use. The variable `device` is that of
k8s.io/dynamic-resource-allocation v0.36.3, cel/compile.go: an attribute or capacity without a
domain has its driver's, and a domain that the device lacks is an empty map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kube_rdma.model.claims.listed import ListedDevice, Version
from kube_rdma.rules.claims.cel.functions import (
    EvaluationError,
    Optional,
    Quantity,
    equal,
    function,
    kind,
    method,
    operated,
    ordered,
    semver,
)
from kube_rdma.rules.claims.cel.syntax import (
    Expression,
    FunctionCall,
    Index,
    ListOf,
    Literal,
    Name,
    NotEvaluated,
    Select,
    parsed,
)

Variables = Mapping[str, object]
_COMPARED: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


class _Domains(dict[str, object]):
    """Attributes or capacities by domain: every domain has a map, most an empty one."""

    def __missing__(self, key: str) -> object:
        return {}


def selects(expression: str, driver: str, device: ListedDevice) -> bool:
    """Whether it is true of the device; raise EvaluationError or NotEvaluated."""
    value = evaluated(parsed(expression), {"device": _variable(driver, device)})
    if not isinstance(value, bool):
        raise EvaluationError(f"the value is {kind(value)}, not bool")
    return value


def _variable(driver: str, device: ListedDevice) -> Mapping[str, object]:
    attributes, capacity = _Domains(), _Domains()
    for name, value in device.attributes.items():
        if value is None:
            raise EvaluationError(f"attribute {name} has no value that is supported")
        plain = semver(value.text) if isinstance(value, Version) else value
        _put(attributes, driver, name, plain)
    for name, has in device.capacity.items():
        _put(capacity, driver, name, Quantity(has.value))
    return {
        "driver": driver,
        "allowMultipleAllocations": device.shared,
        "attributes": attributes,
        "capacity": capacity,
    }


def _put(domains: _Domains, driver: str, name: str, value: object) -> None:
    domain, slash, bare = name.partition("/")
    inner = domains.setdefault(domain if slash else driver, {})
    assert isinstance(inner, dict)
    inner[bare if slash else name] = value


def evaluated(what: Expression, variables: Variables) -> object:
    """The value of an expression; raise EvaluationError or NotEvaluated."""
    match what:
        case Literal():
            return what.value
        case Name():
            if what.name not in variables:
                raise NotEvaluated(f"{what.name} is not evaluated")
            return variables[what.name]
        case Select():
            return _at(evaluated(what.target, variables), what.field, optional=what.optional)
        case Index():
            key = evaluated(what.key, variables)
            return _at(evaluated(what.target, variables), key, optional=what.optional)
        case ListOf():
            return tuple(evaluated(item, variables) for item in what.items)
        case FunctionCall():
            return _called(what, variables)


def _at(target: object, key: object, *, optional: bool) -> object:
    if isinstance(target, Optional):
        if not target.has:
            return target
        target, optional = target.value, True
    if isinstance(target, _Domains) and isinstance(key, str):
        return Optional(target[key], has=True) if optional else target[key]
    if isinstance(target, Mapping):
        if optional:
            return Optional(target.get(key), has=key in target)
        if key not in target:
            raise EvaluationError(f"there is no {key}")
        return target[key]
    if isinstance(target, tuple) and type(key) is int:
        if key not in range(len(target)):
            raise EvaluationError(f"there is no {key}")
        return target[key]
    raise EvaluationError(f"{kind(target)} has no {key}")


def _called(call: FunctionCall, variables: Variables) -> object:
    if call.target is not None:
        return _method(call, call.target, variables)
    if call.name in _LAZY:
        return _LAZY[call.name](call.arguments, variables)
    values = [evaluated(one, variables) for one in call.arguments]
    if call.name in _COMPARED:
        return _COMPARED[call.name](ordered(*values))
    if call.name in _STRICT:
        return _STRICT[call.name](*values)
    if call.name in ("+", "-", "*", "/", "%"):
        return operated(call.name, *values)
    return function(call.name, values)


def _method(call: FunctionCall, target: Expression, variables: Variables) -> object:
    if target == Name("cel") and call.name == "bind" and len(call.arguments) == 3:
        name, value, body = call.arguments
        if not isinstance(name, Name):
            raise NotEvaluated("cel.bind() without a name is not evaluated")
        return evaluated(body, {**variables, name.name: evaluated(value, variables)})
    arguments = [evaluated(one, variables) for one in call.arguments]
    return method(call.name, evaluated(target, variables), arguments)


def _either(arguments: tuple[Expression, ...], variables: Variables, decides: bool) -> bool:
    """Of `&&` and `||`: one side that decides counts even where the other has no value."""
    failure: ValueError | None = None
    for argument in arguments:
        try:
            value = evaluated(argument, variables)
            if not isinstance(value, bool):
                raise EvaluationError(f"{kind(value)} is not bool")  # noqa: TRY301
        except NotEvaluated as error:
            failure = error
        except EvaluationError as error:
            failure = failure or error
        else:
            if value is decides:
                return decides
    if failure:
        raise failure
    return not decides


def _chosen(arguments: tuple[Expression, ...], variables: Variables) -> object:
    condition = evaluated(arguments[0], variables)
    if not isinstance(condition, bool):
        raise EvaluationError(f"{kind(condition)} is not bool")
    return evaluated(arguments[1 if condition else 2], variables)


def _has(arguments: tuple[Expression, ...], variables: Variables) -> bool:
    field = arguments[0] if len(arguments) == 1 else None
    if not isinstance(field, Select):
        raise NotEvaluated("has() of this is not evaluated")
    target = evaluated(field.target, variables)
    if not isinstance(target, Mapping):
        raise EvaluationError(f"{kind(target)} has no {field.field}")
    return isinstance(target, _Domains) or field.field in target


def _within(item: object, whole: object) -> bool:
    if isinstance(whole, Mapping):
        return item in whole
    if isinstance(whole, tuple):
        return any(equal(item, one) for one in whole)
    raise EvaluationError(f"nothing is in {kind(whole)}")


def _not(value: object) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"{kind(value)} is not bool")
    return not value


_LAZY: Mapping[str, Callable[[tuple[Expression, ...], Variables], object]] = {
    "&&": lambda arguments, variables: _either(arguments, variables, decides=False),
    "||": lambda arguments, variables: _either(arguments, variables, decides=True),
    "?:": _chosen,
    "has": _has,
}
_STRICT: Mapping[str, Callable[..., object]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "in": _within,
    "!": _not,
    "negate": lambda value: operated("-", 0.0 if isinstance(value, float) else 0, value),
}
