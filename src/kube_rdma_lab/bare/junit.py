"""What came of each test, read from the JUnit file that pytest wrote inside the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from xml.etree import ElementTree as ET

from kube_rdma.model.errors import Unavailable


class Outcome(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """One test: `text` is its traceback with what it printed, or why it was skipped.

    `facts` are what it recorded of itself (record_property), as a benchmark does.
    """

    outcome: Outcome
    seconds: float
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


def read(xml: str) -> dict[str, Result]:
    """Return the results by pytest's node id; Unavailable when the text is not whole.

    Of a test that has both failed and could not be torn down, the worse counts.
    """
    try:
        suites = ET.fromstring(xml)  # noqa: S314 - written by a machine of ours
    except ET.ParseError as error:
        raise Unavailable(f"the bare machine's JUnit file is not whole: {error}") from error
    found: dict[str, Result] = {}
    for case in suites.iter("testcase"):
        test = _node_id(case)
        result = _result(case)
        if test not in found or result.outcome is Outcome.FAILED:
            found[test] = result
    return found


def _node_id(case: ET.Element) -> str:
    """Where the test was collected: `file` would be where its function is written.

    Both differ for tests that several files share; the module is the first part named as one.
    """
    parts = case.get("classname", "").split(".")
    end = next((i for i, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1) + 1
    return "::".join(["/".join(parts[:end]) + ".py", *parts[end:], case.get("name", "")])


def _result(case: ET.Element) -> Result:
    seconds = float(case.get("time", "0"))
    bad = [*case.iter("failure"), *case.iter("error")]
    if bad:
        printed = [*case.iter("system-out"), *case.iter("system-err")]
        text = "\n".join(part.text or part.get("message") or "" for part in (*bad, *printed))
        return Result(Outcome.FAILED, seconds, text)
    skipped = case.find("skipped")
    if skipped is not None:
        return Result(Outcome.SKIPPED, seconds, skipped.get("message", ""))
    facts = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
    return Result(Outcome.PASSED, seconds, facts=facts)
