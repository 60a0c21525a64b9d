"""Selectors in CEL: true, false, without a value as for the scheduler, or not evaluated here."""

import time

import pytest

from kube_rdma.claims.rules.cel import evaluate
from kube_rdma.claims.rules.cel.evaluate import MOST_STEPS, Selectors
from kube_rdma.claims.rules.cel.functions import EvaluationError
from kube_rdma.claims.rules.cel.syntax import NotEvaluated
from kube_rdma.model.claims.devices import DeviceAttribute, DeviceCapacity, ListedDevice
from kube_rdma.model.kubernetes import quantity
from tests.kit.claims import attributes

DRIVER = "d.test"
DEVICE = ListedDevice(
    "a",
    attributes={
        **attributes({"rail": 1, "model": "ConnectX-7", "fast": True}),
        "firmware": DeviceAttribute(version="28.39.1002-rc.1+build"),
        "std.test/root": DeviceAttribute("pci0000:15"),
    },
    capacity={"memory": DeviceCapacity(quantity("40Gi"))},
    shared=True,
)
OWN = f'device.attributes["{DRIVER}"]'
TRUE = [
    "true",
    f'device.driver == "{DRIVER}"',
    f"{OWN}.rail == 1 && {OWN}.rail != 2 && {OWN}.rail < 1.5",
    f'{OWN}["rail"] + 2 * 3 == 7 && -7 / 2 == -3 && -7 % 2 == -1 && 7 - 1 - 2 == 4',
    f"{OWN}.rail in [0, 1]",
    f'"rail" in {OWN} && !("rate" in {OWN}) && has({OWN}.rail) && !has({OWN}.rate)',
    '!("other.test" in device.attributes) && has(device.attributes.other)',
    f'{OWN}.model.startsWith("Connect") && {OWN}.model.endsWith("7") && {OWN}.model.contains("X")',
    f"{OWN}.model.matches('^C.*-[67]$') && {OWN}.model.lowerAscii() == 'connectx-7'",
    f'{OWN}.model.size() == 10 && size("ä") == 1 && r"\\d" == "\\\\d"',
    f"{OWN}.fast && device.allowMultipleAllocations",
    f'{OWN}.firmware.isLessThan(semver("28.39.1002")) && {OWN}.firmware.major() == 28',
    f'{OWN}.firmware.compareTo(semver("28.39.1002-rc.1")) == 0 && {OWN}.firmware.minor() == 39',
    'semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10")) && !isSemver("1.0")',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40G")) && isQuantity("1k")',
    'device.attributes["std.test"].root == "pci0000:15"',
    'semver("1.0.0-2").isLessThan(semver("1.0.0-a"))',
    "!isSemver('1.0.0-01') && isSemver('1.0.0-0.10') && !isSemver('1.0.0-a..b')",
    "'\\x41' == 'A' && '\\ue000\\ud7ff'.size() == 2 && '\\U0010ffff'.size() == 1",
    f'device.?attributes["{DRIVER}"].rail.orValue(0) == 1 && device.?x.rail.orValue(4) == 4',
    f"{OWN}.?rate.orValue(400) == 400 && {OWN}[?'rail'].hasValue()",
    f"cel.bind(own, {OWN}, own.rail == 1 && own.fast)",
    f"{OWN}.rail == 1 ? true : {OWN}.rate > 0",
    f"{OWN}.rate > 0 || true",
    f"!({OWN}.rate > 0 && false)",
    f'{OWN}.rail != "1"',
    "1 == 1.0 && !(true == 1)  // a comment",
    "device.nothing() || true",
    "!!true && 2 - --1 == 1 && false ? false : false ? false : true",
    "[1, 2][0] == 1",
    "[1, 2][?1].value() == 2 && ![1][?1].hasValue() && [[1], [2]] == [[1], [2]] && [1] != [1, 1]",
    "'m-12'.matches('^[a-z]-[0-9]{1,2}$') && 'a.b'.matches('a\\\\.b')",
    "'Ab'.matches('(?i)^(?:x|aB)$') && 'a'.matches('^(b*|[a-c]??)$')",
    "'ÄB'.lowerAscii() == 'Äb' && 'äb'.upperAscii() == 'äB'",
]
WITHOUT_VALUE = [
    f"{OWN}.rate > 0",
    f"{OWN}.model > 1",
    f"{OWN}.rail",
    f"{OWN}.rail && true",
    f'{OWN}.rail.startsWith("1")',
    'device.attributes["none.test"].rail == 1',
    'semver("1.0") == semver("1.0")',
    'quantity("many") == quantity("many")',
    f"{OWN}.rail / 0 == 1",
    f"{OWN}.?rate.value() == 1",
    f"{OWN}.rate == 1 || {OWN}.rate == 2",
    "[1, 2][2] == 1",
    "device.attributes[[1]] == 1",
    "[1] in device.attributes ? true : 1",
    "'a'.matches(1)",
]


@pytest.mark.parametrize("text", TRUE)
def test_a_selector_takes_the_device(text):
    assert Selectors().take(text, DRIVER, DEVICE)
    assert not Selectors().take(f"!({text.partition('//')[0]})", DRIVER, DEVICE)


@pytest.mark.parametrize("text", WITHOUT_VALUE)
def test_what_has_no_value_is_an_error_as_for_the_scheduler(text):
    with pytest.raises(EvaluationError):
        Selectors().take(text, DRIVER, DEVICE)


def test_an_attribute_without_a_value_that_is_read_spoils_each_selector():
    """As with a list where the gate for lists is off (cel/compile.go, getAttributeValue)."""
    with pytest.raises(EvaluationError):
        Selectors().take("true", DRIVER, ListedDevice("a", attributes={"roots": DeviceAttribute()}))


@pytest.mark.parametrize(
    "text",
    [
        "device.attributes.exists(d, true)",
        "b'x' == b'x'",
        "1u == 1u",
        '"""x""" == "x"',
        "{'a': 1}.a == 1",
        "device.driver ==",
        "(true",
        "true true",
        "nobody == 1",
        "device.driver.split('.').size() == 2",
        "'\\7' == ''",
        "'x'.matches('(?P<')",
        "has(1)",
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('(a+)+$')",
        "'a'.matches('(?x)(a' + '+) +$')",
        "'a'.matches('[[:alpha:]]')",
        "'a'.matches('(a)\\\\1')",
        "'a\\n'.matches('a$')",
        "9223372036854775809 == 1",
        "'\\U00110000' == ''",
        "'\\ud800' == ''",
        "'\\udfff' == ''",
        "cel.bind(a, '" + "x" * 1000 + "', " + "cel.bind(a, a + a, " * 20 + "a == ''" + ")" * 21,
        "",
        "#",
    ],
)
def test_what_is_not_evaluated_is_said_to_be(text):
    with pytest.raises(NotEvaluated):
        Selectors().take(text, DRIVER, DEVICE)


def doubling(times, each=2):
    """Two lists of lists, each of which has the one before several times, compared."""
    text = f"a{times} == b{times}"
    for level in range(times, 0, -1):
        a, b = (",".join([f"{name}{level - 1}"] * each) for name in "ab")
        text = f"cel.bind(a{level}, [{a}], cel.bind(b{level}, [{b}], {text}))"
    return f"cel.bind(a0, [1], cel.bind(b0, [1], {text}))"


def bound(value, text, times):
    return f"cel.bind(a, {value}, {' || '.join([text] * times)})"


# What the API server stores, or may: each is evaluated, or said not to be.
HOSTILE = {
    "a run of !": ("!" * 10_000 + "true", True),
    "a run of -": ("-" * 3_001 + "1 == -1", True),
    "a run of &&": ("&&".join(["true"] * 1_500), True),
    "a run of ||": ("||".join(["false"] * 1_400) + "||true", True),
    "a run of +": ("+".join(["1"] * 1_000) + " == 1000", True),
    "a run of ==": ("1" + "==1" * 3_000, False),
    "a run of ?:": ("false ? true : " * 600 + "true", True),
    "members": ("device" + ".a" * 2_000, EvaluationError),
    "indexes": ("device" + "[0]" * 1_200, EvaluationError),
    "methods": ("''" + ".lowerAscii()" * 700 + " == ''", True),
    "( in (": ("(" * 3_000 + "true" + ")" * 3_000, NotEvaluated),
    "[ in [": ("[" * 3_000 + "]" * 3_000, NotEvaluated),
    "! in (": ("!(" * 3_000 + "true" + ")" * 3_000, NotEvaluated),
    "- in (": ("-(" * 3_000 + "1" + ")" * 3_000, NotEvaluated),
    "? in ?": ("true ? " * 500 + "true" + " : true" * 500, NotEvaluated),
    "calls": ("size(" * 1_500 + "1" + ")" * 1_500, NotEvaluated),
    "has() in has()": ("has(" * 2_000 + "1" + ")" * 2_000, NotEvaluated),
    "lists that double": (doubling(8, 3), True),
    "lists that double often": (doubling(30), NotEvaluated),
    "lists that grow": (doubling(6, 24), NotEvaluated),
    "a list as a key": (
        doubling(6, 24).replace("a6 == b6", "device.attributes[a6]"),
        EvaluationError,
    ),
    "long lists": (bound("[" + "1," * 2_000 + "]", "a + a == []", 400), False),
    "what is in long lists": (bound("[" + "1," * 2_000 + "]", "2 in a", 600), NotEvaluated),
    "long texts": (bound(f"'{'x' * 4_000}'", "a.lowerAscii() == ''", 250), False),
    "long texts that are sought": (bound(f"'{'x' * 4_000}'", "a.contains('xy')", 300), False),
    "choices": (f"'{'a' * 40}'.matches('{'(a|a)' * 30}b')", NotEvaluated),
    "repeats": (f"'{'a' * 60}'.matches('a*a*a*b')", NotEvaluated),
    "groups in groups": ("'a'.matches('" + "(" * 4_000 + ")" * 4_000 + "')", NotEvaluated),
    "many patterns": ("||".join(f"'a'.matches('a{n}b[c-d]{{1,30}}')" for n in range(250)), False),
    "a long quantity": (f"isQuantity('{'1' * 5_000}.{'1' * 5_000}x')", False),
    "a long version": (f"isSemver('1.{'1' * 9_000}')", False),
    "a long number": ("1" * 5_000 + " == 1", NotEvaluated),
    "a long hexadecimal number": ("0x" + "f" * 9_000 + " == 1", NotEvaluated),
    "too long": ("true" + " " * 10_240, NotEvaluated),
}


def result(selectors, text, device=DEVICE):
    """What a selector says, or the class of why it says nothing."""
    try:
        return selectors.take(text, DRIVER, device)
    except (EvaluationError, NotEvaluated) as error:
        return type(error)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_selector_takes_long(name):
    """Half a second on the machine where the control takes 30 ms."""
    text, right = HOSTILE[name]
    before = time.process_time()
    assert sum(number % 2 for number in range(1_000_000))
    control, selectors = time.process_time() - before, Selectors()
    before = time.process_time()
    assert result(selectors, text) == right
    assert time.process_time() - before < 10 * control
    assert selectors.steps <= MOST_STEPS


NESTED = {
    "(": ("(", ")"),
    "all operators": ("false || true && 1 in [1 + 2 * -(true ? ", " : 1)]"),
    "arguments": ("size([true ? ", " : 1])"),
    "members": ("device.driver.contains([true ? ", " : ''][0])"),
    "binds": ("cel.bind(a, [1 + 2], true ? ", " : a)"),
    "values of binds": ("cel.bind(a, [true ? ", " : 1], a)"),
    "has": ("has(device[true ? ", " : ''].a)"),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("times", [15, 19, 20, 21, 200])
def test_nothing_recurses_until_python_ends_it(name, times):
    """Called as deep as no program of the product calls it; RecursionError would be its cause."""

    def deep(levels):
        if levels:
            return deep(levels - 1)
        start, end = NESTED[name]
        try:
            return Selectors().take(start * times + "true" + end * times, DRIVER, DEVICE)
        except (EvaluationError, NotEvaluated) as error:
            return error.__cause__

    assert not isinstance(deep(300), RecursionError)


def test_a_recursion_that_python_ends_is_a_selector_that_is_not_evaluated():
    def deep():
        try:
            return deep()
        except RecursionError:
            return result(Selectors(), "(((((true)))))")

    assert deep() is NotEvaluated


def test_all_devices_and_selectors_together_have_an_end(monkeypatch):
    monkeypatch.setattr(evaluate, "MOST_STEPS_TOGETHER", 300_000)
    devices = [ListedDevice(str(number), DEVICE.attributes) for number in range(100)]
    selectors = Selectors()
    text = doubling(8, 3)
    taken = [result(selectors, text, device) for device in devices]
    assert taken[0] is True
    assert taken[-1] is NotEvaluated
    assert result(selectors, "true", devices[-1]) is NotEvaluated
    assert selectors.steps <= 300_000


def test_a_device_is_asked_once():
    selectors = Selectors()
    assert selectors.take(doubling(8), DRIVER, DEVICE)
    steps = selectors.steps
    assert selectors.take(doubling(8), DRIVER, DEVICE)
    assert steps == selectors.steps
