"""The load of benchmarks asks again after errors, as a container runtime does, but not for ever."""

import asyncio
from types import SimpleNamespace

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma_tools.address_load import _patiently
from tests.unit.kube_client.test_silence import hurry, run

SILENT, FULL = Unavailable("no contact"), Refused("the pool is full", remedy="Add a range")


class Provider:
    """A node that answers with these errors first, and then with addresses."""

    def __init__(self, *errors):
        self.errors = list(errors)

    async def add(self, request):
        if self.errors:
            raise self.errors.pop(0)
        return SimpleNamespace(allocations=(request,))


def loaded(*errors):
    """What the load gets of a node for one request, on a clock that goes quickly."""
    answers = []

    async def test(loop):
        hurrying = asyncio.create_task(hurry(loop))
        try:
            answers.append(await _patiently(Provider(*errors), "c1"))
        finally:
            hurrying.cancel()

    run(test)
    return answers[0]


@pytest.mark.parametrize("errors", [(), (FULL,) * 4, (SILENT,) * 9, (SILENT, FULL)])
def test_errors_that_end_are_counted(errors):
    assert loaded(*errors) == (("c1",), len(errors))


@pytest.mark.parametrize("silent", [0, 4, 5, 9])
def test_a_refusal_that_lasts_is_raised_whatever_came_first(silent):
    with pytest.raises(Refused, match="the pool is full"):
        loaded(*[SILENT] * silent, *[FULL] * 5)
