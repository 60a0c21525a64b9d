"""Where the time of a test run is counted to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.times import SHARED, Shared

_TESTS = """
import pytest

@pytest.fixture(scope="session")
def made():
    pass

def test_asks_while_it_runs(request):
    request.getfixturevalue("made")

def test_is_next():
    pass
"""


class _Reports:
    def __init__(self) -> None:
        self.shared: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = [*dict(report.user_properties).get(SHARED, {})]
        self.shared[f"{report.location[2]} {report.when}"] = names


def test_a_shared_fixture_is_taken_off_the_part_of_the_test_that_made_it(tmp_path: Path) -> None:
    """Taken off the next test's setup it gave times below zero."""
    path = tmp_path / "test_two.py"
    path.write_text(_TESTS, encoding="utf-8")
    reports = _Reports()
    words = f"-q -p no:asyncio -p no:cacheprovider -c /dev/null --rootdir {tmp_path}".split()
    assert pytest.main([*words, str(path)], plugins=[Shared(), reports]) == 0
    assert {part: names for part, names in reports.shared.items() if names} == {
        "test_asks_while_it_runs call": ["made"]
    }
