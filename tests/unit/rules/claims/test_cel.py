"""Selectors in CEL: true, false, without a value as for the scheduler, or not evaluated here."""

import pytest

from kube_rdma.model.claims.listed import ListedCapacity, ListedDevice, Version
from kube_rdma.model.quantity import quantity
from kube_rdma.rules.claims.cel.evaluate import selects
from kube_rdma.rules.claims.cel.functions import EvaluationError
from kube_rdma.rules.claims.cel.syntax import NotEvaluated

DRIVER = "d.test"
DEVICE = ListedDevice(
    "a",
    attributes={
        "rail": 1,
        "model": "ConnectX-7",
        "fast": True,
        "firmware": Version("28.39.1002-rc.1+build"),
        "std.test/root": "pci0000:15",
    },
    capacity={"memory": ListedCapacity(quantity("40Gi"))},
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
    f'{OWN}.firmware.compareTo(semver("28.39.1002-rc.1")) == 0',
    'semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10")) && !isSemver("1.0")',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0',
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40G")) && isQuantity("1k")',
    'device.attributes["std.test"].root == "pci0000:15"',
    f"{OWN}.?rate.orValue(400) == 400 && {OWN}[?'rail'].hasValue()",
    f"cel.bind(own, {OWN}, own.rail == 1 && own.fast)",
    f"{OWN}.rail == 1 ? true : {OWN}.rate > 0",
    f"{OWN}.rate > 0 || true",
    f"!({OWN}.rate > 0 && false)",
    f'{OWN}.rail != "1"',
    "1 == 1.0 && !(true == 1)  // a comment",
    "device.nothing() || true",
]


@pytest.mark.parametrize("text", TRUE)
def test_a_selector_takes_the_device(text):
    assert selects(text, DRIVER, DEVICE)
    assert not selects(f"!({text.partition('//')[0]})", DRIVER, DEVICE)


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_what_has_no_value_is_an_error_as_for_the_scheduler(text):
    with pytest.raises(EvaluationError):
        selects(text, DRIVER, DEVICE)


def test_an_attribute_without_a_value_that_is_read_spoils_each_selector():
    """As with a list where the gate for lists is off (cel/compile.go, getAttributeValue)."""
    with pytest.raises(EvaluationError):
        selects("true", DRIVER, ListedDevice("a", attributes={"roots": None}))


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
        "(" * 100 + "true" + ")" * 100,
        "has(1)",
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('(a+)+$')",
        "'a'.matches('a*a*a*a*a*b')",
        f"'{'a' * 300}'.matches('a')",
        "cel.bind(a, '" + "x" * 1000 + "', " + "cel.bind(a, a + a, " * 20 + "a == ''" + ")" * 21,
        "",
        "#",
    ],
)
def test_what_is_not_evaluated_is_said_to_be(text):
    with pytest.raises(NotEvaluated):
        selects(text, DRIVER, DEVICE)
