"""Device nodes of a real /dev: devtmpfs makes them, and inotify tells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kube_rdma.adapters.kernel.device_nodes import CharNodes, missing
from kube_rdma.hardware.survey import take_survey

from .world import PATIENCE, device, run

pytestmark = [pytest.mark.core, pytest.mark.kernel("lab.kernel=any")]


def test_the_node_of_a_new_device_is_told_and_there(cards, link):
    folder = Path("/dev/infiniband")

    async def wait(changes, name):
        async with asyncio.timeout(PATIENCE):
            while await anext(changes) != name:
                pass

    async def main():
        async with CharNodes(folder) as changes:
            await asyncio.to_thread(link, "rxe0", cards[0])
            paths = [char.path for char in device(take_survey(), "rxe0").char_devices]
            (uverbs,) = [path for path in paths if "uverbs" in path]
            await wait(changes, uverbs.rpartition("/")[2])
            assert missing(paths, folder) == set()
            await asyncio.to_thread(run, "rdma", "link", "delete", "rxe0")
            await wait(changes, uverbs.rpartition("/")[2])
            assert uverbs in missing(paths, folder)

    asyncio.run(main())
