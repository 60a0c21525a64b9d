"""What meta-plugins are told of granted cards, of every pool whose shares are cards."""

import pytest
from grpclib import GRPCError

from kube_base.frozen import replace
from kube_rdma.adapters.files.device_info import DeviceInfoFolder, file_name
from kube_rdma.model.pools import DeviceInfo, ShareId
from tests.unit.agent.world import VKE, World, hard_card, until

CARDS = [hard_card(n) for n in range(2)]
SHARE = ShareId("0000:81:00.0-0")


@pytest.fixture
def world(tmp_path_factory, recording):
    return World(tmp_path_factory.mktemp("w"), *CARDS)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "dp"


def dependencies(world, folder):
    return replace(world.dependencies(), device_infos=DeviceInfoFolder(folder))


def names(folder):
    return {path.name for path in folder.iterdir()}


async def offered(world):
    await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)


async def test_files_of_shares_that_are_no_more_are_removed(world, folder):
    files = DeviceInfoFolder(folder)
    for share in (SHARE, ShareId("0000:99:00.0-0")):
        files.write(VKE, share, DeviceInfo("0000:81:00.0", ()))
    world.label("shared")
    async with world.serving(dependencies(world, folder)):
        await offered(world)
        await until(lambda: names(folder) == {file_name(VKE, SHARE)})


async def test_a_folder_that_cannot_be_written_costs_no_pod_its_card(world, folder, recording):
    folder.write_text("no folder")
    world.label("shared")
    async with world.serving(dependencies(world, folder)):
        await offered(world)
        await world.kubelet.allocate(VKE, 1, (SHARE,))
        assert recording.of("device info file not written")
    config = folder.with_name("config.json")
    selectors = '{"pfNames": ["eth0"], "isRdma": true}'
    config.write_text(f'{{"resourceList": [{{"resourceName": "vf", "selectors": {selectors}}}]}}')
    world.label(None)
    made = replace(world.dependencies(config), device_infos=DeviceInfoFolder(folder))
    async with world.serving(made):
        await world.kubelet.until(lambda: world.kubelet.healthy("intel.com/vf") == 1)
        with pytest.raises(GRPCError, match="cannot be written"):
            await world.kubelet.allocate("intel.com/vf", 1)
