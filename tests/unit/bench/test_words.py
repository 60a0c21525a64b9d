"""Every benchmark that needs no lab measures something; the others are tried beside the labs."""

import pytest

from bench.__main__ import BENCHMARKS
from tests.kit import bench_words
from tests.lab.machines.test_bench import WITH_MACHINES
from tests.lab.native.test_bench import WITHOUT_MACHINES

WORDS = (
    *("devices", "admission", "imports", "survey", "events", "hostile", "scrape", "shim"),
    "nccl-env",
)
WITH_NAMESPACES = ("attach", "overload")  # which root may make
WITH_ANOTHER_CHECKOUT = ("beside",)  # its rows without one: test_beside.py


@pytest.mark.slow
@pytest.mark.parametrize("word", [*WORDS, *WITH_NAMESPACES])
def test_a_word_measures_something(word):
    bench_words.check(word)


def test_each_word_has_its_test():
    tried = (*WORDS, *WITH_NAMESPACES, *WITHOUT_MACHINES, *WITH_MACHINES, *WITH_ANOTHER_CHECKOUT)
    assert sorted(tried) == sorted(BENCHMARKS)
