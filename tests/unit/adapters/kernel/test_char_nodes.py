"""Device nodes come and go, and whoever waits for them is woken; a folder and the fake alike."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel.device_nodes import FOLDER, CharNodes, missing
from kube_rdma_testing.kernel.listeners import FakeCharNodes

UVERBS, RDMA_CM = "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"


@dataclass(frozen=True)
class World:
    """A listener, and acts that make and remove nodes."""

    listener: object
    create: Callable
    delete: Callable
    missing: Callable


@pytest.fixture(params=["fake", "real"])
def world(request, tmp_path):
    if request.param == "fake":
        fake = FakeCharNodes()
        return World(fake, fake.create, fake.delete, fake.missing)
    folder = tmp_path / FOLDER
    folder.mkdir()
    return World(
        CharNodes(folder),
        lambda name: (folder / name).touch(exist_ok=False),
        lambda name: (folder / name).unlink(),
        lambda paths: missing(paths, folder),
    )


async def woken(changes):
    return await anext(changes)


async def test_a_node_that_comes_or_goes_wakes(world):
    async with world.listener as changes:
        world.create("uverbs0")
        assert await woken(changes) == "uverbs0"
        assert world.missing([UVERBS, RDMA_CM]) == {RDMA_CM}
        world.delete("uverbs0")
        assert await woken(changes) == "uverbs0"
        assert world.missing([UVERBS]) == {UVERBS}


async def test_waiting_can_be_cancelled_and_nothing_is_lost(world):
    async with world.listener as changes:
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        world.create("rdma_cm")
        await woken(changes)


def test_without_a_folder_every_node_is_missing(tmp_path):
    assert missing([UVERBS, RDMA_CM], tmp_path / FOLDER) == {UVERBS, RDMA_CM}


def test_nodes_of_vfio_are_looked_for_beside_the_folder(tmp_path):
    """vfio_create_group makes /dev/vfio/41, with or without any RDMA device."""
    group, container = "/dev/vfio/41", "/dev/vfio/vfio"
    assert missing([group, container], tmp_path / FOLDER) == {group, container}
    (tmp_path / "vfio").mkdir()
    (tmp_path / "vfio/41").touch()
    assert missing([group, container], tmp_path / FOLDER) == {container}


async def test_a_folder_that_comes_later_is_waited_for(tmp_path):
    """It appears with the first module, goes with the last, and comes again."""
    folder = tmp_path / FOLDER
    async with CharNodes(folder) as changes:
        for _ in range(2):
            folder.mkdir()
            assert await woken(changes) == FOLDER
            (folder / "uverbs0").touch()
            assert await woken(changes) == "uverbs0"
            assert missing([UVERBS], folder) == set()
            shutil.rmtree(folder)
            assert [await woken(changes) for _ in "12"] == ["uverbs0", FOLDER]


async def test_other_things_beside_the_folder_wake_nobody(tmp_path):
    async with CharNodes(tmp_path / FOLDER) as changes:
        (tmp_path / "null").touch()
        (tmp_path / FOLDER).mkdir()
        assert await woken(changes) == FOLDER


async def test_a_parent_that_goes_is_unavailable(tmp_path):
    dev = tmp_path / "dev"
    dev.mkdir()
    async with CharNodes(dev / FOLDER) as changes:
        dev.rmdir()
        with pytest.raises(Unavailable, match="was removed or moved"):
            await woken(changes)


async def test_a_parent_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Refused, match="cannot be watched") as caught:
        await CharNodes(tmp_path / "dev" / FOLDER).__aenter__()
    assert caught.value.where == str(tmp_path / "dev")


def test_the_fake_refuses_what_no_kernel_makes():
    fake = FakeCharNodes(["uverbs0"])
    with pytest.raises(ValueError, match="there already"):
        fake.create("uverbs0")
    with pytest.raises(ValueError, match="is not there"):
        fake.delete("uverbs1")
    with pytest.raises(ValueError, match="makes no node"):
        fake.create("sda")
