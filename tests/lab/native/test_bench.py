"""Every benchmark that has a control plane or native nodes of its own measures something."""

import pytest

from tests.kit import bench_words

WITHOUT_MACHINES = ("allocate", "ipam", "operator")


@pytest.mark.slow
@pytest.mark.parametrize("word", WITHOUT_MACHINES)
def test_a_word_measures_something(word):
    bench_words.check(word)
