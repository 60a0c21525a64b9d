"""The VKE node: its label alone says what its cards are, and a change waits for pods to end."""

import json

import pytest
from grpclib import GRPCError

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.journal.codec import POOLS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.agent import loop
from kube_rdma_testing.disk import FakeDisk
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import VKE, World, hard_card, running, until

CARDS = [hard_card(n) for n in range(4)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(loop, "PENDING_SECONDS", 0.02)
    monkeypatch.setattr(loop, "KEPT_SECONDS", 0.02)


@pytest.fixture
def world(tmp_path_factory, recording):
    return World(tmp_path_factory.mktemp("w"), *CARDS)


@pytest.mark.parametrize(
    ("mode", "shares"), [("exclusive", 4), ("shared", 4), ("shared-multi", 64)]
)
async def test_a_mode_by_label_alone(world, mode, shares):
    """Four cards make `vke.volcengine.com/rdma: 4` in the 1:1 modes, more where they are shared."""
    async with world.serving(world.dependencies()):
        assert world.kubelet.devices == {}
        world.label(mode)
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == shares)
        assert "0000:81:00.0-0" in world.kubelet.devices[VKE]
        nodes = world.kubelet.store.nodes[VKE]
        assert nodes["0000:81:00.0-0"] == (0,)
        assert nodes["0000:84:00.0-0"] == (1,)


async def test_a_container_gets_exactly_its_card(world):
    world.label("shared")
    async with world.serving(world.dependencies()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        answer = await world.kubelet.allocate(VKE, 1, ("0000:82:00.0-0",))
        assert [(d.host_path, d.permissions) for d in answer.devices] == [
            ("/dev/infiniband/rdma_cm", "rw"),
            ("/dev/infiniband/uverbs1", "rw"),
        ]


async def test_a_change_of_mode_waits_for_the_pods_and_says_so(world, recording):
    world.label("shared")
    async with world.serving(world.dependencies()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        await world.kubelet.allocate(VKE, 1, place=ContainerPlace("training"))
        world.label("shared-multi")
        await recording.wait_for("mode change pending")
        assert recording.of("mode change pending")[0]["what"] == (
            "vke.volcengine.com/rdma stays in mode shared, mode shared-multi (label "
            "vke.node.rdma.mode) waits until these pods have ended: default/training"
        )
        assert world.kubelet.healthy(VKE) == 4
        await until(lambda: world.events_of("ModeChangePending"))
        world.kubelet.remove_pod("training")
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 64)
        await until(lambda: world.events_of("ModeChangeApplied"))
    assert len(recording.of("mode change pending")) == 1
    (made,) = recording.of("mode change applied")
    assert world.events_of("ModeChangeApplied") == [made["what"]]
    assert made["what"] == (
        "vke.volcengine.com/rdma is in mode shared-multi (label vke.node.rdma.mode) now, it was "
        "in mode shared"
    )


def remembering(world, disk, **options):
    """The agent's dependencies with a journal, each time opened anew."""
    return replace(world.dependencies(**options), applied=lambda: Journal(disk, POOLS))


async def test_a_change_that_waits_waits_after_a_restart_too(world, recording):
    """Every update of the DaemonSet is one: the card of a pod is given to nobody else."""
    disk = FakeDisk()
    world.label("exclusive")
    async with world.kubelet:
        async with running(remembering(world, disk)):
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
            await world.kubelet.allocate(VKE, 1, place=ContainerPlace("training"))
            world.label("shared-multi")
            await recording.wait_for("mode change pending")
        disk.crash()
        async with running(remembering(world, disk)):
            await until(lambda: len(recording.of("mode change pending")) == 2)
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
            assert recording.of("mode change pending")[1]["what"].startswith(
                "vke.volcengine.com/rdma stays in mode exclusive, mode shared-multi"
            )
            world.kubelet.remove_pod("training")
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 64)


async def test_a_record_that_cannot_be_read_is_told_and_nobody_waits_for_it(world, recording):
    disk = FakeDisk()
    disk.write(disk.create("pools.json"), b"{")
    world.label("shared")
    async with world.serving(remembering(world, disk)):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
    assert recording.of("journal record not understood")
    assert "pools.json" in disk.names()


async def test_a_record_of_late_binding_is_met_without_it_where_there_is_none(world, recording):
    """The runtime was not reached at the start: pods get their cards all the same."""
    disk = FakeDisk()
    world.label("exclusive")
    async with world.kubelet:
        async with running(remembering(world, disk, late=True)):
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
            answer = await world.kubelet.allocate(VKE, 1, place=ContainerPlace("training"))
            assert answer.cdi_devices
        world.journal.close()
        async with running(remembering(world, disk)):
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
            answer = await world.kubelet.allocate(VKE, 1, ("0000:82:00.0-0",))
            assert answer.devices


def policy(name, **further):
    pool = {"resource": f"rdma/{name}", "mode": "exclusive", **further}
    head = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy"}
    return json.dumps({**head, "metadata": {"name": "a"}, "spec": {"pools": [pool]}})


async def test_a_card_of_a_resource_that_went_is_offered_when_its_pod_has_ended(
    world, tmp_path, recording
):
    """Under its new name it would be given away a second time."""
    config = tmp_path / "config.json"
    config.write_text(policy("old"))
    async with world.serving(world.dependencies(config)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/old") == 4)
        await world.kubelet.allocate("rdma/old", 1, place=ContainerPlace("training"))
        config.write_text(policy("new"))
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/new") == 3)
        (line,) = recording.of("card not free")
        assert line["what"] == (
            "mlx5_0: default/training still has it, of rdma/old, which is no longer advertised"
        )
        world.kubelet.remove_pod("training")
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/new") == 4)
    assert not recording.of("card unhealthy"), "it is in good health"


class Networks:
    """Pod networks that only listen; `limits` hears which containers are about to start."""

    def __init__(self):
        self.told, self.starts, self.limits = [], [], self

    async def before_start(self, resource, shares):
        self.starts.append((resource, tuple(shares)))

    def offered(self, pools, withdrawn=()):
        self.told.append((set(pools), tuple(withdrawn)))
        self.pools = pools

    async def concerned(self, pod):
        return True

    def attachments(self):
        return ()

    def cards(self):
        return frozenset()

    async def run(self, late):
        """Nothing to serve."""


async def test_pod_networks_hear_what_is_offered_no_more_while_a_pod_has_it(world, tmp_path):
    config, networks = tmp_path / "config.json", Networks()
    config.write_text(policy("old"))
    async with world.serving(replace(world.dependencies(config), networks=networks)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/old") == 4)
        await world.kubelet.allocate("rdma/old", 1, place=ContainerPlace("training"))
        assert networks.told[-1] == ({"rdma/old"}, ())
        config.write_text(policy("new"))
        await until(lambda: networks.told[-1] == ({"rdma/new"}, ("rdma/old",)))
        world.kubelet.remove_pod("training")
        await until(lambda: networks.told[-1] == ({"rdma/new"}, ()))


@pytest.mark.parametrize("late", [False, True])
async def test_limits_are_held_before_each_start_of_a_container(world, tmp_path, late):
    """With late binding and without, with networks and without; where they cannot be, none starts.

    A policy that brings limits has the kubelet ask from then on.
    """
    config, networks = tmp_path / "config.json", Networks()
    config.write_text(policy("a"))
    job = ContainerPlace("job")
    world.pod("job")
    async with world.serving(replace(world.dependencies(config, late=late), networks=networks)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 4)
        await world.kubelet.allocate("rdma/a", 1, place=job)
        await world.kubelet.start_container(job)
        assert not networks.starts
        config.write_text(policy("a", rdmaLimits={"hcaObject": 100}))
        await until(lambda: networks.pools["rdma/a"].spec.limits)
        registered = 1 if late else 2
        await world.kubelet.until(
            lambda: (
                world.kubelet.registrations.count("rdma/a") == registered
                and world.kubelet.healthy("rdma/a") == 4
            )
        )
        held = ("rdma/a", tuple(world.kubelet.store.holdings[job, "rdma/a"]))
        for count in (1, 2):
            await world.kubelet.start_container(job)
            assert networks.starts == count * [held]
        networks.before_start = refused
        with pytest.raises(GRPCError, match="this node has cgroup v1"):
            await world.kubelet.start_container(job)


async def refused(resource, shares):
    raise Refused("this node has cgroup v1", remedy="Boot it with cgroup v2", where=resource)


async def test_an_agent_without_networks_starts_no_container_with_limits(world, tmp_path):
    config, job = tmp_path / "config.json", ContainerPlace("job")
    config.write_text(policy("a", rdmaLimits={"hcaObject": 100}))
    async with world.serving(world.dependencies(config)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 4)
        await world.kubelet.allocate("rdma/a", 1, place=job)
        with pytest.raises(GRPCError, match="the agent runs without --networks"):
            await world.kubelet.start_container(job)


async def test_a_changed_file_takes_effect_and_leaves_others_alone(world, tmp_path, recording):
    """A further pool appears; the first one's server is not touched."""
    config = tmp_path / "config.json"
    config.write_text('{"mode": "hca"}')
    async with world.serving(world.dependencies(config)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        entry = '{"resourceName": "a", "rdmaHcaMax": 7, "devices": ["eth0"]}'
        other = '{"resourceName": "hca", "rdmaHcaMax": 1000, "devices": ["eth1"]}'
        config.write_text(f'{{"configList": [{entry}, {other}]}}')
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/a") == 7)
        assert world.kubelet.registrations == ["rdma/hca", "rdma/a"]
        answer = await world.kubelet.allocate("rdma/a", 1)
        assert [d.host_path for d in answer.devices][1:] == ["/dev/infiniband/uverbs0"]


async def test_a_virtual_function_is_told_to_cni_plugins(world, tmp_path):
    """The SR-IOV device plugin's document: the function by its address, variables, the file."""
    config = tmp_path / "config.json"
    selectors = '{"pfNames": ["eth0"], "isRdma": true}'
    config.write_text(f'{{"resourceList": [{{"resourceName": "vf", "selectors": {selectors}}}]}}')
    infos = DeviceInfoFolder(tmp_path / "dp")
    resource, address = "intel.com/vf", "0000:81:00.0"
    async with world.serving(replace(world.dependencies(config), device_infos=infos)):
        await world.kubelet.until(lambda: world.kubelet.healthy(resource) == 1)
        answer = await world.kubelet.allocate(resource, 1)
        assert answer.envs["PCIDEVICE_INTEL_COM_VF"] == address
        assert json.loads(answer.envs["PCIDEVICE_INTEL_COM_VF_INFO"]).keys() == {address}
        (path,) = (tmp_path / "dp").iterdir()
        assert path.name == f"intel.com-vf-{address}-device.json"


async def test_a_label_that_means_nothing_changes_nothing(world, recording):
    world.label("shared")
    async with world.serving(world.dependencies()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        world.label("shred")
        await until(lambda: world.events_of("ConfigurationRefused"))
        note = world.events_of("ConfigurationRefused")[0]
        assert "shred" in note
        assert "shared-multi" in note
        assert world.kubelet.healthy(VKE) == 4


async def test_the_label_taken_away_withdraws_the_resource(world, recording):
    world.label("shared")
    async with world.serving(world.dependencies()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
        world.label(None)
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 0)
        await until(lambda: len(recording.of("card left the pool")) == 4)


async def test_a_file_that_breaks_leaves_the_last_good_one(world, tmp_path, recording):
    config = tmp_path / "config.json"
    config.write_text('{"mode": "hca"}')
    async with world.serving(world.dependencies(config)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/hca") == 1000)
        config.write_text('{"mode": "hcb"}')
        await recording.wait_for("configuration rejected")
        assert world.kubelet.healthy("rdma/hca") == 1000
        config.unlink()
        await until(lambda: len(recording.of("configuration rejected")) == 2)
        assert world.kubelet.healthy("rdma/hca") == 1000


async def test_a_card_that_a_selector_misses_by_its_name_has_an_event_and_its_reason(
    world, tmp_path, recording
):
    """It has not vanished: the card is there, and the name in the selector is not."""

    def named(*cards):
        pool = {"resource": "rdma/nic", "mode": "shared", "selectors": [{"rdmaDevices": cards}]}
        head = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "NodePolicy"}
        return json.dumps(head | {"metadata": {"name": "p"}, "spec": {"pools": [pool]}})

    config, names = tmp_path / "config.json", [f"mlx5_{n}" for n in range(4)]
    config.write_text(named(*names))
    async with world.serving(world.dependencies(config)):
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/nic") == 4)
        config.write_text(named(*names[:3], "mlx5_33"))
        await world.kubelet.until(lambda: world.kubelet.healthy("rdma/nic") == 3)
        await until(lambda: world.events_of("CardInNoPool"))
        await world.again(3)
        (event,) = world.events_of("CardInNoPool")
    assert event.startswith("mlx5_3 is in no pool: RDMA device mlx5_3 is not among ")
    (line,) = recording.of("card left the pool")
    assert line["card"] == "mlx5_3"
    assert line["why"].startswith("RDMA device mlx5_3 is not among ")
    assert recording.of("card vanished") == []
