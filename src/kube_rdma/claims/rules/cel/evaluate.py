"""Evaluates whether a selector takes a device, as the scheduler does.

claims/rules/search calls it for devices of a node. The variable `device` is as in k8s.io/dynamic-
resource-allocation v0.36.3, cel/compile.go. An attribute or capacity without a domain has its
driver's, and a domain that the device lacks is an empty map.

Readers of a claim did not write its selectors, so their cost is bounded, in steps of about a
microsecond. Each part of a text is evaluated once at most, so its length bounds the time. Functions
that may take longer (comparing lists, searching by a pattern) count their own steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import ge, gt, le, lt
from typing import Any

from kube_rdma.claims.rules.cel import functions, syntax
from kube_rdma.claims.rules.cel.syntax import Expression, NotEvaluated
from kube_rdma.model.claims.devices import DeviceAttribute, ListedDevice

MOST_STEPS = 100_000  # of one selector for one device
MOST_STEPS_TOGETHER = 5_000_000  # of all nodes, devices and selectors
Variables = Mapping[str, object]
Arguments = tuple[Expression, ...]
_COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge}


class _Domains(dict[str, dict[str, object]]):
    """A map of attributes or capacities by domain; an unknown domain has an empty map."""

    def __init__(self, driver: str, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            domain, _, bare = name.rpartition("/")
            self.setdefault(domain or driver, {})[bare] = value

    def __missing__(self, key: str) -> object:
        return {}


class Selectors:
    """An evaluator of CEL selectors, for one claim or a few; `steps` counts its work."""

    def __init__(self) -> None:
        self.steps = self._most = 0
        self._answers: dict[tuple[str, str, int], bool] = {}

    def take(self, expression: str, driver: str, device: ListedDevice) -> bool:
        """Return whether a CEL expression selects the device.

        Raise EvaluationError if the expression is neither true nor false for the device. Raise
        NotEvaluated if kube-rdma cannot evaluate it. Answers are kept by the device's id(), so the
        caller keeps the device alive.
        """
        key = (expression, driver, id(device))
        if key not in self._answers:
            self._most = min(self.steps + MOST_STEPS, MOST_STEPS_TOGETHER)
            self._spend(len(expression) // 4 + len(device.attributes) + len(device.capacity))
            try:
                variables = {"device": _variable(driver, device)}
                value = self._value(syntax.parsed(expression), variables)
            except RecursionError as error:
                raise NotEvaluated("it is nested too deeply") from error
            self._answers[key] = _bool(value)
        return self._answers[key]

    def _spend(self, steps: int) -> None:
        """Count steps of evaluation; raise NotEvaluated beyond the limit."""
        self.steps += steps
        if self.steps > self._most:
            self.steps = self._most
            raise NotEvaluated("it would take too long")

    def _value(self, what: Expression, variables: Variables) -> object:
        match what:
            case syntax.Literal():
                return what.value
            case syntax.Name():
                if what.name not in variables:
                    raise NotEvaluated(f"{what.name} is not evaluated")
                return variables[what.name]
            case syntax.ListOf():
                return tuple([self._value(item, variables) for item in what.items])
            case syntax.FunctionCall():
                return self._called(what.name, what.arguments, variables)
            case syntax.Chain():
                return self._followed(what.start, what.steps, variables)

    def _followed(self, start: Expression, steps: syntax.Steps, variables: Variables) -> object:
        value = self._value(start, variables)
        for step in steps:
            if isinstance(step, syntax.Index):
                value = _at(value, self._value(step.key, variables), optional=step.optional)
            else:
                values = [self._value(one, variables) for one in step.arguments]
                value = self._stepped(step.name, value, values)
        return value

    def _bound(self, arguments: Arguments, variables: Variables) -> object:
        if len(arguments) != 3 or not isinstance(arguments[0], syntax.Name):
            raise NotEvaluated("cel.bind() of this is not evaluated")
        value = self._value(arguments[1], variables)
        return self._value(arguments[2], {**variables, arguments[0].name: value})

    def _stepped(self, name: str, left: object, values: list[object]) -> object:
        """Return the value of an operator between two values, or of a method of the first."""
        if name in _COMPARED:
            return _COMPARED[name](functions.ordered(left, values[0]), 0)
        if name in ("==", "!="):
            return functions.equal(left, values[0], self._spend) is (name == "==")
        if name == "in":
            return self._within(left, values[0])
        if name in ("+", "-", "*", "/", "%"):
            return functions.operated(name, left, values[0])
        return functions.called(name, (left, *values), self._spend)

    def _called(self, name: str, arguments: Arguments, variables: Variables) -> object:
        if name in ("&&", "||"):
            return self._either(arguments, variables, decides=name == "||")
        if name == "?:":
            return self._chosen(arguments, variables)
        if name == "has":
            return self._has(arguments, variables)
        if name == "cel.bind":
            return self._bound(arguments, variables)
        values = [self._value(one, variables) for one in arguments]
        return functions.called(name, values, self._spend)

    def _either(self, arguments: Arguments, variables: Variables, *, decides: bool) -> bool:
        """Evaluate `&&` or `||`: one side that decides is enough, even if another one fails."""
        failure: ValueError | None = None
        for argument in arguments:
            try:
                if _bool(self._value(argument, variables)) is decides:
                    return decides
            except NotEvaluated as error:
                failure = error
            except functions.EvaluationError as error:
                failure = failure or error
        if failure:
            raise failure
        return not decides

    def _chosen(self, arguments: Arguments, variables: Variables) -> object:
        """Evaluate `?:`: the value of the first true condition, else the last argument."""
        for place in range(0, len(arguments) - 1, 2):
            if _bool(self._value(arguments[place], variables)):
                return self._value(arguments[place + 1], variables)
        return self._value(arguments[-1], variables)

    def _has(self, arguments: Arguments, variables: Variables) -> bool:
        chain = arguments[0] if len(arguments) == 1 else None
        field = chain.steps[-1] if isinstance(chain, syntax.Chain) else None
        if not isinstance(chain, syntax.Chain) or not isinstance(field, syntax.Index):
            raise NotEvaluated("has() of this is not evaluated")
        target = self._followed(chain.start, chain.steps[:-1], variables)
        if not isinstance(target, Mapping) or not isinstance(field.key, syntax.Literal):
            raise functions.EvaluationError(f"{functions.kind(target)} has no such field")
        return isinstance(target, _Domains) or field.key.value in target

    def _within(self, item: object, whole: object) -> bool:
        if isinstance(whole, Mapping):
            return isinstance(item, str) and item in whole
        if isinstance(whole, tuple):
            return any(functions.equal(item, one, self._spend) for one in whole)
        raise functions.EvaluationError(f"nothing is in {functions.kind(whole)}")


def _variable(driver: str, device: ListedDevice) -> Mapping[str, object]:
    if DeviceAttribute() in device.attributes.values():
        raise functions.EvaluationError("an attribute of it has no value that is supported")
    attributes = {
        name: one.value if one.version is None else functions.semver(one.version)
        for name, one in device.attributes.items()
    }
    return {
        "driver": driver,
        "allowMultipleAllocations": bool(device.shared),
        "attributes": _Domains(driver, attributes),
        "capacity": _Domains(
            driver, {n: functions.Quantity(one.value) for n, one in device.capacity.items()}
        ),
    }


def _at(target: Any, key: Any, *, optional: bool) -> object:
    if isinstance(target, functions.Optional):
        if not target.has:
            return target
        target, optional = target.value, True
    if isinstance(target, Mapping) and isinstance(key, str):
        has = key in target or isinstance(target, _Domains)
    elif isinstance(target, tuple) and type(key) is int:
        has = 0 <= key < len(target)
    else:
        named = key if isinstance(key, str) else functions.kind(key)
        raise functions.EvaluationError(f"{functions.kind(target)} has no {named:.80}")
    if not has and not optional:
        raise functions.EvaluationError(f"there is no {key!s:.80}")
    value = target[key] if has else None
    return functions.Optional(value, has) if optional else value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise functions.EvaluationError(f"the value is {functions.kind(value)}, not bool")
    return value
