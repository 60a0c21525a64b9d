"""Every benchmark that needs no lab measures something; the others are tried beside the labs."""

import inspect

import pytest

from bench.__main__ import BENCHMARKS
from tests.kit import bench_words
from tests.lab.machines.test_bench import WITH_MACHINES
from tests.lab.native.test_bench import WITHOUT_MACHINES

QUICK = ("nccl-env", "survey")  # two seconds each: in every run of the tests
WORDS = ("devices", "imports", "events", "hostile", "scrape", "shim")
WITH_NAMESPACES = ("attach", "overload")  # which root may make
WITH_ANOTHER_CHECKOUT = ("beside", "plugin-beside")  # their rows without one: test_*beside.py


@pytest.mark.parametrize("word", QUICK)
def test_a_quick_word_measures_something(word):
    bench_words.check(word)


@pytest.mark.slow
@pytest.mark.parametrize("word", [*WORDS, *WITH_NAMESPACES])
def test_a_word_measures_something(word):
    bench_words.check(word)


def test_each_word_has_its_test():
    tried = (*QUICK, *WORDS, *WITH_NAMESPACES, *WITHOUT_MACHINES, *WITH_MACHINES)
    assert sorted((*tried, *WITH_ANOTHER_CHECKOUT)) == sorted(BENCHMARKS)


@pytest.mark.parametrize("word", BENCHMARKS)
def test_a_word_gives_its_figures_one_by_one(word):
    """One that gives them all at its end would lose them with the first that fails."""
    assert inspect.isgeneratorfunction(BENCHMARKS[word].measure)
