"""The page of `scale` has what was measured last, what it grows by, and the other commit's end."""

import pytest

from bench.results import Result
from bench.scale_fit import carried, exponent
from bench.scale_page import tables


def result(key, value, day="2026-01-02", commit="new", benchmark="scale"):
    return Result(day, commit, "machine", benchmark, key, value, "kB")


def test_a_row_has_a_column_for_each_size_and_what_both_commits_come_to():
    lines = list(
        tables(
            [
                result("agents_10_gone", 5.0, "2026-01-01", "old"),
                *(result(f"agents_{size}_pod", 1.0) for size in (10, 100)),
                result("exponent_pod", 0.0),
                *(
                    result(f"beside_agents_{size}_pod", size / 2, commit="other")
                    for size in (10, 50)
                ),
                result("agents_10_pod_to_beside", 0.2),
                result("agents_100_rest", 7.0),
                result("blocks", 3.0, "2026-01-01", "old", "scale-addresses"),
            ]
        )
    )
    assert lines[0] == (
        "| figure | 10 agents | 100 agents | exponent | 5,000 nodes | 5,000 nodes of other | more |"
    )
    assert lines[2] == "| `pod` | 1 kB | 1 kB | 0.00 | 1 kB | 2,500 kB |  |"
    assert lines[3] == "| `rest` |  | 7 kB |  |  |  |  |"
    assert "| `blocks` | 3 kB |  |  |" in lines
    assert not [line for line in lines if "gone" in line or "beside" in line]


@pytest.mark.parametrize(
    ("values", "slope", "end"),
    [
        ({10: 7.0, 100: 1.0, 500: 5.0}, 1.0, 50.0),
        ({100: 1.0, 500: 25.0}, 2.0, 2500.0),
        ({100: 11.0, 500: 15.0}, 0.193, 60.0),  # 10 and one for each hundred
    ],
)
def test_a_figure_is_carried_on_by_its_power_or_by_its_line(values, slope, end):
    assert exponent(values) == pytest.approx(slope, abs=0.001)
    assert carried(values, slope) == pytest.approx(end, rel=0.001)
