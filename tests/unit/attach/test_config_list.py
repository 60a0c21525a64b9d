"""Pools of configList, on cards like any: bound late where pods get networks, else at Allocate."""

import json
from pathlib import Path

import pytest
from grpclib import GRPCError

from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.late_binding import ContainerId, Edits, PodName, UsedDevice
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.conftest import card as soft_card
from tests.unit.agent.world import World, hard_card

A, B = "rdma/hca_shared_devices_a", "rdma/hca_shared_devices_b"
JOB = ContainerPlace("job")
ASKS = {"k8s.v1.cni.cncf.io/networks": "rdma"}
BOTH = ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"]


def config(world, *interfaces):
    """A file with a pool for each list of interfaces."""
    pools = [
        {"resourceName": f"hca_shared_devices_{letter}", "rdmaHcaMax": 4, "devices": names}
        for letter, names in zip("ab", interfaces, strict=False)
    ]
    path = world.folder / "config.json"
    path.write_text(json.dumps({"configList": pools}))
    return path


@pytest.fixture(params=["hard", "soft"])
def world(request, tmp_path_factory, recording):
    make = hard_card if request.param == "hard" else soft_card
    found = World(tmp_path_factory.mktemp("w"), make(0), make(1))
    found.networks, found.shim = True, "/bin/shim"
    return found


async def admitted(world, annotations=None, **further):
    """A pod that got a share; the answer of Allocate."""
    world.pod("job", annotations, **further)
    await world.kubelet.until(lambda: world.kubelet.healthy(A) == 4)
    return await world.kubelet.allocate(A, 1, ("0",), place=JOB)


def edits(world):
    """What the CDI files of bindings give, by the resource's turn."""
    found = sorted((world.folder / "cdi").glob("kube-rdma-*.json"))
    return [json.loads(one.read_text())["devices"][0]["containerEdits"] for one in found]


def nodes(edit):
    return [node["path"] for node in edit["deviceNodes"]]


def settings(edit):
    (folder,) = (hook["args"][-1] for hook in edit["hooks"] if hook["args"][2] == "settings")
    return (Path(folder) / "nccl.conf").read_text().splitlines()


def used(number):
    return UsedDevice(f"mlx5_{number}", 1, f"net{number}", gid_index=5)


def sandbox(world):
    name = PodName("default", "job")
    return Sandbox(ContainerId("5a7d"), name, "uid-job", f"{world.folder}/netns/x", 1)


async def test_a_container_gets_the_device_of_its_own_network(world):
    """And is told of it, and may lock memory; it waits until it has it."""
    async with world.serving(world.dependencies(config(world, ["eth0", "eth1"]), late=True)):
        answer = await admitted(world, ASKS)
        assert not answer.devices
        with pytest.raises(GRPCError, match="no network of pod default/job is attached"):
            await world.kubelet.start_container(JOB)
        made = Edits(("/dev/infiniband/uverbs1",), used=(used(1),))
        await world.binder.attach(sandbox(world), {(A, "0"): made})
        await world.kubelet.start_container(JOB)
        (edit,) = edits(world)
        assert nodes(edit) == ["/dev/infiniband/uverbs1"]
        assert [hook["args"][2] for hook in edit["hooks"]] == ["memlock", "settings"]
        assert "NCCL_IB_HCA==mlx5_1:1" in settings(edit)


@pytest.mark.parametrize("pod", [{}, {"annotations": ASKS, "host_network": True}])
async def test_a_pod_without_a_network_opens_every_card_of_the_pool(world, pod):
    """On the host's network and on the cluster's: the same nodes as at Allocate."""
    path = config(world, ["eth0", "eth1"])
    async with world.serving(world.dependencies(path, late=True)):
        await admitted(world, **pod)
        await world.kubelet.start_container(JOB)
        (edit,) = edits(world)
        assert nodes(edit) == BOTH
        assert world.binder.cards() == frozenset(), "a share of all cards is no card"
    world.journal.close()
    world.networks = False
    async with world.serving(world.dependencies(path)):
        place = ContainerPlace("next")
        await world.kubelet.until(lambda: world.kubelet.healthy(A) == 4)
        answer = await world.kubelet.allocate(A, 1, ("1",), place=place)
        assert sorted(one.container_path for one in answer.devices) == BOTH


async def test_a_container_of_another_plugin_s_starts_again(world):
    """Its devices were given at Allocate, under the same names of shares (decision 0107)."""
    path = config(world, ["eth0", "eth1"])
    async with world.serving(world.dependencies(path)):
        await admitted(world)
    async with world.serving(world.dependencies(path, late=True)):
        await world.kubelet.until(lambda: world.kubelet.healthy(A) == 4)
        await world.kubelet.start_container(JOB)
        assert not edits(world)
