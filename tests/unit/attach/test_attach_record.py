"""The record of an ADD, which is written while we find out what the pod gets."""

import asyncio
from threading import Event

import pytest

from kube_base.errors import Refused
from tests.unit.attach.test_attach_faults import PLANS


async def test_a_refusal_waits_for_the_record_that_is_on_its_way(tmp_path):
    """Removed before, it would stay."""
    world = PLANS["macvlan on RDMA hardware"](tmp_path)
    world.sandbox()
    world.ask("nowhere")
    begun, goes_on = Event(), Event()
    create, unlink, removed = world.disk.create, world.disk.unlink, []

    def slowly(name):
        begun.set()
        goes_on.wait()
        return create(name)

    def remove(name):
        removed.append(goes_on.is_set())
        unlink(name)

    world.disk.create, world.disk.unlink = slowly, remove
    adding = asyncio.create_task(world.add(1))
    await asyncio.to_thread(begun.wait)
    for _ in range(200):  # turns of the loop and its threads: whoever does not wait needs fewer
        await asyncio.to_thread(int)
    waits = not adding.done()
    goes_on.set()
    with pytest.raises(Refused, match="nowhere"):
        await adding
    assert waits
    assert set(removed) == {True}
    world.nothing_left(1)
