"""What each endpoint writes into the journals for one ADD and its DEL, file by file, in order.

``python -m tests.unit.attach.journal_script FOLDER`` writes it as the agent
does now. The files under data/journal were written so by commit 5b2682f, when each endpoint had a
procedure of its own; nobody writes them again (test_endpoints.py), but for the Step that came since
with decision 0094: router advertisements are ignored.
"""

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

from kube_rdma.model.attach.cni import Wiring
from kube_rdma.model.pools import Mode
from tests.unit.attach.delegate_world import NETWORK, DelegateWorld
from tests.unit.attach.network_world import RESOURCE, card, share

SHARES = [share(card(0), Mode.SHARED_MULTI), share(card(1), Mode.EXCLUSIVE)]


def noted(disk, folder, lines):
    """The same disk; what is done to its files is noted too."""
    create, write, rename, unlink = disk.create, disk.write, disk.rename, disk.unlink

    def created(name):
        lines.append([folder, "create", name])
        return create(name)

    def written(handle, content):
        # Path and inode of a namespace are this machine's.
        text = re.sub(r'"netns_path":"[^"]*/', '"netns_path":"/', content.decode())
        lines.append([folder, "write", re.sub(r'"netns_inode":\d+', '"netns_inode":0', text)])
        write(handle, content)

    def renamed(old, new):
        lines.append([folder, "rename", old, new])
        rename(old, new)

    def unlinked(name):
        lines.append([folder, "unlink", name])
        unlink(name)

    disk.create, disk.write, disk.rename, disk.unlink = created, written, renamed, unlinked


def world_of(folder):
    """A pod with a share of one card and another card of its own, which asks for two networks."""
    world = DelegateWorld(folder, [card(0), card(1)], SHARES, {})
    world.node.networks["default/rail"] = (RESOURCE, json.dumps(NETWORK))
    world.node.networks["default/other"] = (None, '{"cniVersion": "1.0.0", "type": "bridge"}')
    world.sandbox()
    return world


async def chained(world):
    """The runtime calls once, for all networks; another plugin makes one of them."""
    world.wiring = Wiring.CHAIN
    world.ask("rail,rail,other")
    await world.chain("ADD", 1)
    await world.chain("DEL", 1)


async def delegated(world):
    world.ask("rail,rail")
    for verb, names in (("ADD", ("net1", "net2")), ("DEL", ("net2", "net1"))):
        for name in names:
            await world.meta(verb, 1, name)


async def addressed(world):
    (pool,) = world.node.pools
    config = {"type": "macvlan", "ipam": {"type": "kube-rdma-ipam", "pool": pool}}
    for verb in ("ADD", "ADD", "DEL"):
        await world.meta(verb, 1, **config)


ENDPOINTS = {"chained": chained, "delegated": delegated, "addressed": addressed}


async def script(endpoint, folder):
    """Every act on the files of both folders, in order, but for what reaches the disk when."""
    world, lines = world_of(folder), []
    noted(world.disk, "attachments", lines)
    noted(world.delegated, "delegated", lines)
    await ENDPOINTS[endpoint](world)
    return lines


def main(folder):
    for endpoint in ENDPOINTS:
        with tempfile.TemporaryDirectory() as place:
            lines = asyncio.run(script(endpoint, Path(place)))
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{endpoint}.jsonl").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
