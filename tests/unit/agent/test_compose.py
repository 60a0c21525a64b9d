"""Where an agent keeps what it must know after a restart: each memory is a journal of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent import compose
from tests.unit.adapters.journal.samples import RECORDS


@pytest.mark.parametrize(
    ("folder", "opened"), [("pools", compose._applied), ("rails", compose._rails)]
)
async def test_a_memory_is_a_journal_below_the_state_and_lasts(tmp_path, folder, opened):
    """It is closed with the agent, and the next one finds what is in it."""
    options = SimpleNamespace(places=SimpleNamespace(state_dir=tmp_path))
    ((name, value),) = RECORDS[folder][1].items()
    async with AsyncExitStack() as stack:
        opened(options, stack).put(name, value)
    assert (tmp_path / folder / f"{name}.json").exists()
    async with AsyncExitStack() as stack:
        journal = opened(options, stack)
        assert isinstance(journal, Journal)
        assert journal.load().records == ((name, value),)
