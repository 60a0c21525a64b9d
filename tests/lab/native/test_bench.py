"""Benchmarks that compile Go, or have nodes or a control plane of their own, measure something."""

import pytest

from tests.kit import bench_words

WITHOUT_MACHINES = (
    "allocate",
    "claims",
    "claim-start",
    "doctor",
    "ipam",
    "operator",
    "scale",
    "scale-addresses",
    "scheduling",
    "tests",
)


@pytest.mark.slow
@pytest.mark.parametrize("word", WITHOUT_MACHINES)
def test_a_word_measures_something(word):
    bench_words.check(word)
