"""A part that fails is hidden with its reason, and hides no other."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_rdma.lib.part_reader import PartReader, first_sentence
from kube_rdma.model.finding import NotSeen

FAILURES = (
    Unavailable("nobody answers"),
    Refused("no right", remedy="Add it"),
    OSError(13, "Permission denied", "/proc/1"),
    ValueError("no number"),
)


def answering(outcome):
    """What returns a value, or raises an error."""

    def read():
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return read


@given(st.lists(st.sampled_from([*FAILURES, 0, 1, "", None]), max_size=8))
async def test_each_part_stands_alone(outcomes):
    """The same for what is read here and what a neighbour is asked for."""
    reader = PartReader()
    for number, outcome in enumerate(outcomes):
        read = answering(outcome)

        async def ask(read=read):
            return read()

        expected = None if isinstance(outcome, Exception) else outcome
        assert reader.part(f"read {number}", read) == expected
        assert await reader.asked(f"asked {number}", ask) == expected
    assert reader.not_seen == [
        NotSeen(f"{way} {number}", str(outcome))
        for number, outcome in enumerate(outcomes)
        if isinstance(outcome, Exception)
        for way in ("read", "asked")
    ]


async def test_a_neighbour_that_does_not_answer_in_time_is_not_seen():
    reader = PartReader(patience=0.01)
    assert await reader.asked("runtime", asyncio.Event().wait) is None
    assert reader.not_seen == [NotSeen("runtime", "no answer within 0.01 s")]


def test_an_error_that_hides_nothing_is_raised():
    """Without an API server there is no status at all."""
    reader = PartReader(hidden_by=(Refused,))
    assert reader.part("nodes", answering(FAILURES[1])) is None
    with pytest.raises(Unavailable):
        reader.part("nodes", answering(FAILURES[0]))
    assert [one.part for one in reader.not_seen] == ["nodes"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FAILURES[1], "no right. Add it"),
        (Refused.all([FAILURES[1], FAILURES[1]]), "no right. Add it"),
        (FAILURES[2], "/proc/1: Permission denied"),
        (OSError(110, "Connection timed out"), "Connection timed out"),
        (FAILURES[3], "no number"),
    ],
)
def test_a_reason_can_be_a_part_of_a_sentence(error, words):
    """Without its stop, and without the number of an error of the kernel."""
    assert first_sentence(error) == words
