"""Which container gets what, by CDI, the pool's attach and the shim: the table of docs/settings.md.

The kubelet hands on what Allocate answered, the runtime makes of its CDI devices what their files
say; here both are asked.
"""

import json
import shutil
from pathlib import Path

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.agent.compose import AgentOptions, opened
from kube_rdma.model.pools import Attach
from kube_rdma.pools.documents.config import LABEL_RESOURCE
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.runtime.cdi import FakeCdiRuntime
from tests.unit.agent.world import World, hard_card

RESOURCE = "rdma/hca"
JOB = ContainerPlace("job")
SHIM = "/opt/cni/bin/kube-rdma"
OWN = "/usr/share/kube-rdma"


@pytest.fixture
def world(tmp_path_factory, recording):
    found = World(tmp_path_factory.mktemp("w"), hard_card(0), hard_card(1))
    found.networks = True
    return found


def policy(world, attach=None):
    """A configuration: a pool of all cards."""
    pool = {"resource": RESOURCE, "mode": "hca", "shares": 4, "fabric": {"trafficClass": 106}}
    if attach:
        pool["attach"] = attach.value
    path = world.folder / "policy.json"
    kind = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy", "metadata": {"name": "a"}}
    path.write_text(json.dumps({**kind, "spec": {"pools": [pool]}}))
    return path


async def started(world, share="0"):
    """The answer of Allocate for a pod without networks, whose container then starts."""
    world.pod("job")
    await world.kubelet.until(lambda: world.kubelet.healthy(RESOURCE) == 4)
    answer = await world.kubelet.allocate(RESOURCE, 1, (f"hca-{share}",), place=JOB)
    await world.kubelet.start_container(JOB)
    return answer


def hooks(world, answer):
    """By their word the hooks that the container's runtime finds."""
    runtime = FakeCdiRuntime(world.folder / "cdi")
    edits = runtime.create(*(one.name for one in answer.cdi_devices))
    assert runtime.errors() == ()
    return {one.args[2]: one for one in edits.hooks}


def lines(folder):
    """What NCCL reads in a folder of the host; with the script beside it."""
    assert (folder / "nccl_env.sh").read_text().startswith("#!/bin/sh")
    text = (folder / "nccl.conf").read_text().splitlines()
    return [line for line in text if not line.startswith("#")]


def seen(world, answer):
    """What a container gets: lines merged with its own, lines in the own folder, memory to lock."""
    found = hooks(world, answer)
    merged = lines(Path(found["settings"].args[-1])) if "settings" in found else None
    mounts = {one.container_path: Path(one.host_path) for one in answer.mounts}
    assert all(one.read_only for one in answer.mounts)
    mounted = None
    if mounts:
        assert (mounts[f"{OWN}/bin"] / "nccl_env.sh").stat().st_mode & 0o777 == 0o755
        mounted = lines(mounts[f"{OWN}/{RESOURCE}"])
    return merged, mounted, "memlock" in found


TOLD = ["NCCL_IB_HCA==mlx5_0:1,mlx5_1:1", "NCCL_IB_TC=106"]
MERGED, MOUNTED = (TOLD, None, True), (None, TOLD, False)


@pytest.mark.parametrize(
    ("cdi", "attach", "shim", "gets"),
    [
        (True, None, SHIM, MERGED),
        (True, Attach.AUTO, SHIM, MERGED),
        (True, Attach.NONE, SHIM, MERGED),
        (True, Attach.AUTO, None, MOUNTED),
        (True, Attach.NONE, None, MOUNTED),
        (False, None, None, MOUNTED),
        (False, Attach.AUTO, None, MOUNTED),
        (False, Attach.NONE, None, MOUNTED),
        (False, Attach.AUTO, SHIM, MOUNTED),
        (False, Attach.NONE, SHIM, MOUNTED),
    ],
)
async def test_a_container_gets_its_settings(world, cdi, attach, shim, gets):
    world.shim = shim
    async with world.serving(world.dependencies(policy(world, attach), late=cdi)):
        answer = await started(world)
        if cdi and not shim:  # its devices, which is all that the CDI file then has
            assert answer.cdi_devices or answer.devices
        assert seen(world, answer) == gets


@pytest.mark.parametrize(("cdi", "shim"), [(False, None), (True, SHIM)])
async def test_a_node_with_two_resources_names_no_device_at_allocate(world, cdi, shim):
    """The second is that of the node's label, which every agent follows."""
    world.shim = shim
    world.label("shared")
    async with world.serving(world.dependencies(policy(world, Attach.NONE), late=cdi)):
        await world.kubelet.until(lambda: world.kubelet.healthy(LABEL_RESOURCE))
        told, mounted, _ = seen(world, await started(world))
        assert (told or mounted) == TOLD[1:]


@pytest.mark.parametrize("mounted", [True, False])
async def test_role_plugin_alone_gives_them_where_the_host_s_folder_is_mounted(world, mounted):
    """Without it nothing is written, and the devices are given all the same."""
    state = world.folder / "state"
    if mounted:
        state.mkdir()
    other = ("cdi_dir", "runtime_socket", "socket", "host")
    options = AgentOptions(
        connect=lambda: pytest.fail("asked"),
        kubelet_root=world.folder,
        state_dir=state,
        **{name: world.folder / name for name in other},
    )
    async with opened(options) as alone:
        late = alone.late
    async with world.serving(replace(world.dependencies(policy(world)), late=late)):
        answer = await started(world)
        assert seen(world, answer) == (MOUNTED if mounted else (None, None, False))
        assert len(answer.devices) == 3
        assert not answer.cdi_devices
    assert state.exists() is mounted


async def test_devices_given_at_allocate_are_given_all_the_same(world):
    world.shim = SHIM
    async with world.serving(world.dependencies(policy(world, Attach.NONE), late=True)):
        paths = [one.container_path for one in (await started(world)).devices]
        assert paths == [f"/dev/infiniband/{one}" for one in ("rdma_cm", "uverbs0", "uverbs1")]
        assert not world.journal.load().records, "nothing is promised, so nothing can be lost"


async def test_a_boot_takes_no_settings_from_those_who_start_again(world):
    """The kubelet goes on giving what Allocate answered; only the disk is as it was."""
    world.shim = SHIM
    path = policy(world, Attach.NONE)
    async with world.serving(world.dependencies(path, late=True)):
        answer = await started(world)
    shutil.rmtree(world.folder / "cdi")
    world.journal.close()
    async with world.serving(world.dependencies(path, late=True)):
        await world.kubelet.until(lambda: world.kubelet.healthy(RESOURCE) == 4)
        await world.binder.forget()
        assert seen(world, answer) == MERGED


async def test_another_shim_is_run_from_then_on(world):
    """The runtime was told of other folders: files of nobody alone are written over."""
    world.shim = SHIM
    async with world.serving(world.dependencies(policy(world, Attach.NONE), late=True)):
        answer = await started(world)
        world.shim = "/var/lib/cni/bin/kube-rdma"
        await world.binder.forget()
        assert {one.path for one in hooks(world, answer).values()} == {world.shim}


@pytest.mark.parametrize("late", [True, False])
async def test_a_disk_without_room_takes_no_device_from_anybody(
    world, recording, monkeypatch, late
):
    """The container starts, as before there were settings; the log says why, once."""

    def full(*_):
        raise Unavailable("No space left on device.")

    monkeypatch.setattr("kube_rdma.adapters.runtime.settings.Shelf.put", full)
    world.shim = SHIM
    async with world.serving(world.dependencies(policy(world, Attach.NONE), late=late)):
        for share in "01":
            answer = await started(world, share)
            assert len(answer.devices) == 3
            assert not answer.mounts
            assert not answer.cdi_devices
        assert [one["why"] for one in recording.of("settings not given")] == [
            "No space left on device."
        ]
