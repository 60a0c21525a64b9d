"""Every benchmark that boots machines measures something: the lab's, and the bare one."""

import pytest

from tests.kit import bench_words

WITH_MACHINES = ("attach-vm", "lab")


@pytest.mark.slow
@pytest.mark.parametrize("word", WITH_MACHINES)
def test_a_word_measures_something(word, machine):
    bench_words.check(word)
