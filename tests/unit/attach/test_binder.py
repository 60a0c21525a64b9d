"""Late binding through the agent: Allocate promises, CNI binds, PreStartContainer lets through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grpclib import GRPCError

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.agent import loop
from kube_rdma.attach.late_binding import LateBindingChoice, NoLateBinding
from kube_rdma.attach.rules.settings import ANNOTATION, TOPOLOGY, TOPOLOGY_FILE, topology_file
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.device import PortState
from kube_rdma.model.late_binding import ContainerId, Edits, PodName, PodSandbox, UsedDevice
from kube_rdma.model.settings import PlacedNet, TopologyFacts
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import VKE, World, hard_card, running, until

CARDS = [hard_card(n) for n in range(4)]
JOB, JOB_NAME = ContainerPlace("job"), PodName("default", "job")
SANDBOX = ContainerId("5a7d")
ASKS = {"k8s.v1.cni.cncf.io/networks": "rdma"}


@pytest.fixture
def world(tmp_path_factory, recording):
    world = World(tmp_path_factory.mktemp("w"), *CARDS)
    world.label("shared")
    return world


def files(world):
    return [json.loads(path.read_text()) for path in sorted((world.folder / "cdi").glob("*.json"))]


async def admitted(world, annotations=None, share="0000:82:00.0-0", place=JOB, **further):
    """A pod that got its share; the answer of Allocate."""
    world.pod(place.pod, annotations, **further)
    await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
    return await world.kubelet.allocate(VKE, 1, (share,), place=place)


def attach(world, *given):
    sandbox = Sandbox(SANDBOX, JOB_NAME, "uid-job", f"{world.folder}/netns/x", 1)
    return world.binder.attach(sandbox, *given)


async def test_a_pod_with_a_network_starts_when_it_is_attached(world):
    async with world.serving(world.dependencies(late=True)):
        world.shim = "/bin/shim"
        answer = await admitted(world, ASKS)
        assert not answer.devices
        (name,) = [device.name for device in answer.cdi_devices]
        assert name.startswith("kube-rdma.io/hca=0000:82:00.0-0-")
        with pytest.raises(GRPCError, match="no network of pod default/job is attached"):
            await world.kubelet.start_container(JOB)
        await attach(world)
        (spec,) = files(world)
        (device,) = spec["devices"]
        assert f"{spec['kind']}={device['name']}" == name
        assert [node["path"] for node in device["containerEdits"]["deviceNodes"]] == [
            "/dev/infiniband/rdma_cm",
            "/dev/infiniband/uverbs1",
        ]
        hooks = device["containerEdits"]["hooks"]
        assert [hook["path"] for hook in hooks] == ["/bin/shim"] * 2
        await world.kubelet.start_container(JOB)
        await world.binder.detach(SANDBOX)
        assert files(world) == []


async def test_a_container_is_told_of_the_devices_that_it_uses(world):
    """By files on the host, which a hook merges with its own; they go with the sandbox."""
    used = UsedDevice("mlx5_1", 1, "net1", gid_index=5)
    held = (VKE, "0000:82:00.0-0")
    async with world.serving(world.dependencies(late=True)):
        world.shim = "/bin/shim"
        await admitted(world, ASKS)
        await attach(world, {held: Edits(("/dev/infiniband/uverbs1",), used=(used,))})
        (spec,) = files(world)
        lift, merge = spec["devices"][0]["containerEdits"]["hooks"]
        assert (lift["hookName"], merge["hookName"]) == ("createRuntime", "createContainer")
        folder = Path(merge["args"][-1])
        assert "NCCL_IB_HCA==mlx5_1:1\nNCCL_IB_GID_INDEX=5\n" in (folder / "nccl.conf").read_text()
        assert "UCX_NET_DEVICES=mlx5_1:1\n" in (folder / "ucx.conf").read_text()
        assert not (folder / TOPOLOGY_FILE).exists()
        await world.binder.detach(SANDBOX)
        assert not (world.folder / "settings").exists()


async def test_the_settings_of_a_container_stay_as_they_are_when_its_card_fails(world):
    """Its Event is what tells a pod of it."""
    used = UsedDevice("mlx5_1", 1, "net1", gid_index=5)
    held = (VKE, "0000:82:00.0-0")
    async with world.serving(world.dependencies(late=True)):
        world.shim = "/bin/shim"
        await admitted(world, ASKS)
        await attach(world, {held: Edits(used=(used,))})
        before = settings(world)
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: len(world.events_of("RDMACardUnhealthy")) == 2)
        await world.again(2)
        assert "nccl.conf" in {path.name for path in before}
        assert settings(world) == before


def settings(world):
    """The files that containers see, with when they were written."""
    every = (world.folder / "settings").rglob("*")
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in every if path.is_file()}


async def test_a_container_is_told_where_its_device_sits_if_it_asks(world):
    place = PlacedNet("mlx5_1", None, 1)
    used = UsedDevice("mlx5_1", 1, "net1", gid_index=5, place=place)
    facts = TopologyFacts(masks={0: "f", 1: "f0"})
    async with world.serving(world.dependencies(late=True)):
        world.shim = "/bin/shim"
        world.binder._needs = replace(world.binder._needs, topology={(place,): facts}.__getitem__)
        await admitted(world, ASKS)
        edits = Edits(("/dev/infiniband/uverbs1",), used=(used,))
        asked = {ANNOTATION: TOPOLOGY}
        await attach(world, {(VKE, "0000:82:00.0-0"): edits}, asked)
        (spec,) = files(world)
        folder = Path(spec["devices"][0]["containerEdits"]["hooks"][-1]["args"][-1])
        assert (folder / TOPOLOGY_FILE).read_text() == topology_file([place], facts)
        assert "\nNCCL_TOPO_FILE=/etc/kube-rdma/" in (folder / "nccl.conf").read_text()


async def test_a_pod_whose_annotation_nobody_reads_is_held_with_the_reason(world):
    """But not one that has its networks from before: its containers may start anew."""

    async def concerned(_):
        raise Refused("Cello does not read it", remedy="Write blocks", where="pod default/job")

    async with world.serving(world.dependencies(late=True)):
        world.binder._needs = replace(world.binder._needs, concerned=concerned)
        await admitted(world, ASKS)
        with pytest.raises(GRPCError, match=r"pod default/job: Cello does not read it\. Write"):
            await world.kubelet.start_container(JOB)
        await attach(world)
        await world.kubelet.start_container(JOB)


@pytest.mark.parametrize("pod", [{}, {"annotations": ASKS, "host_network": True}])
async def test_a_pod_without_a_network_is_bound_at_its_start(world, pod):
    async with world.serving(world.dependencies(late=True)):
        await admitted(world, **pod)
        await world.kubelet.start_container(JOB)
        assert len(files(world)) == 1


async def test_a_card_is_known_as_a_pods_from_its_promise_on(world):
    """By this, and not by where its interface is, it is known from one that another program took.

    A record of another version may be about any card.
    """
    async with world.serving(world.dependencies(late=True)):
        assert world.binder.cards() == frozenset()
        await admitted(world, ASKS)
        assert world.binder.cards() == {"0000:82:00.0"}
        await attach(world)
        assert world.binder.cards() == {"0000:82:00.0"}
    world.journal.close()
    for path in (world.folder / "journal").glob("promise-*"):
        path.write_bytes(path.read_bytes().replace(b'"promise"', b'"promise2"'))
    world.dependencies(late=True)
    assert world.binder.cards() is None


THIEF = ContainerPlace("thief")


def runs(world, name, container, *, ready=True):
    """The runtime has a sandbox of a pod, besides those that it has; the pod's uid."""
    metas = [pod["metadata"] for pod in world.server.documents("pods")]
    (uid,) = [meta["uid"] for meta in metas if meta["name"] == name]
    world.sandboxes.append(PodSandbox(container, PodName("default", name), uid, ready=ready))
    return uid


class TestAKubeletThatLostItsCheckpoint:
    """It gives the card of a pod that runs to another one."""

    @pytest.fixture
    def world(self, tmp_path_factory, recording):
        world = World(tmp_path_factory.mktemp("w"), *CARDS)
        world.label("exclusive")
        return world

    async def start(self, world, place, attached, number):
        """Allocate, ADD where the pod has a network, PreStartContainer."""
        await admitted(world, ASKS if attached else None, place=place)
        uid = runs(world, place.pod, f"c{number}")
        if attached:
            netns = world.folder / "netns" / place.pod
            netns.parent.mkdir(exist_ok=True)
            netns.touch()
            sandbox = Sandbox(f"c{number}", PodName("default", place.pod), uid, str(netns), number)
            await world.binder.attach(sandbox)
        await world.kubelet.start_container(place)

    @pytest.mark.parametrize("first", [False, True])
    @pytest.mark.parametrize("second", [False, True])
    async def test_the_card_of_a_pod_that_runs_is_not_given_again(self, world, first, second):
        async with world.serving(world.dependencies(late=True)):
            await self.start(world, JOB, first, 1)
            world.kubelet.remove_pod("job")
            with pytest.raises((GRPCError, Refused), match=r"still .* pod default/job"):
                await self.start(world, THIEF, second, 2)
            nodes = [device["name"] for spec in files(world) for device in spec["devices"]]
            assert len(nodes) == 1

    async def test_nor_when_it_was_forgotten_long_ago(self, world, monkeypatch):
        """Also after the agent started anew: the journal knows, and the runtime shows the pod."""
        monkeypatch.setattr("kube_rdma.attach.rules.late_binding.GRACE", -1.0)
        async with world.kubelet:
            async with running(world.dependencies(late=True)):
                await self.start(world, JOB, False, 1)
            world.journal.close()
            async with running(world.dependencies(late=True)):
                world.kubelet.remove_pod("job")
                await world.binder.forget()
                await world.binder.forget()
                assert len(files(world)) == 1
                with pytest.raises(GRPCError, match="held by pod default/job, which runs"):
                    await self.start(world, THIEF, False, 2)

    @pytest.mark.parametrize("attached", [False, True])
    async def test_no_claim_gets_it_either(self, world, attached):
        """Claims ask this while they are prepared; the kubelet tells of no holder."""
        async with world.serving(world.dependencies(late=True)):
            await self.start(world, JOB, attached, 1)
            world.kubelet.remove_pod("job")
            (held,) = await world.binder.held()
            assert (held.pod, held.resource, held.shares) == ("job", VKE, ("0000:82:00.0-0",))
            world.sandboxes = []
            (world.folder / "netns" / "job").unlink(missing_ok=True)
            assert await world.binder.held() == ()

    async def test_nor_do_pods_of_another_mode(self, world, monkeypatch):
        """Its share would be another one of the same card."""
        monkeypatch.setattr(loop, "PENDING_SECONDS", 0.02)
        async with world.serving(world.dependencies(late=True)):
            await self.start(world, JOB, False, 1)
            world.kubelet.remove_pod("job")
            world.label("shared-multi")
            await until(lambda: world.events_of("ModeChangePending"))
            assert "default/job" in world.events_of("ModeChangePending")[0]
            assert world.kubelet.healthy(VKE) == 4
            world.sandboxes = []
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 64)

    @pytest.mark.parametrize("left", [[], [False]])
    async def test_a_pod_that_is_gone_has_no_card(self, world, left):
        """Nobody told the agent of its end; the runtime has no sandbox of it, or a stopped one."""
        async with world.serving(world.dependencies(late=True)):
            await self.start(world, JOB, False, 1)
            world.kubelet.remove_pod("job")
            world.sandboxes = []
            for ready in left:
                runs(world, "job", "c1", ready=ready)
            await self.start(world, THIEF, False, 2)

    async def test_a_pod_of_the_same_name_is_another_one(self, world):
        async with world.serving(world.dependencies(late=True)):
            await self.start(world, JOB, False, 1)
            world.kubelet.remove_pod("job")
            world.server.remove(POD, "job", "default")
            with pytest.raises(GRPCError, match="held by pod default/job, which runs"):
                await self.start(world, JOB, False, 2)
            del world.sandboxes[0]
            await world.kubelet.start_container(JOB)

    async def test_while_the_runtime_is_silent_nothing_is_given_again(self, world):
        async with world.serving(world.dependencies(late=True)):
            await self.start(world, JOB, False, 1)
            world.kubelet.remove_pod("job")

            async def silent():
                raise Unavailable("The container runtime does not answer.")

            world.binder._needs = replace(world.binder._needs, sandboxes=silent)
            with pytest.raises(GRPCError, match="runtime does not answer"):
                await self.start(world, THIEF, False, 2)
            with pytest.raises(Unavailable):
                await world.binder.forget()


def told(world, name="nccl.conf"):
    """What the container of the only CDI file is told, None without settings."""
    (spec,) = files(world)
    hooks = spec["devices"][0]["containerEdits"]["hooks"]
    merges = [hook["args"][-1] for hook in hooks if hook["args"][2] == "settings"]
    return (Path(merges[0]) / name).read_text() if merges else None


async def test_a_pod_without_a_network_is_told_of_its_cards(world):
    """Which of their GIDs is its own nobody knows; nccl_env.sh finds out."""
    world.shim = "/bin/shim"
    async with world.serving(world.dependencies(late=True)):
        await admitted(world)
        await world.kubelet.start_container(JOB)
        assert "\nNCCL_IB_HCA==mlx5_1:1\n" in told(world)
        assert "NCCL_IB_GID_INDEX=" not in told(world)
        assert told(world, "nccl_env.sh").startswith("#!/bin/sh")


async def test_a_container_that_starts_again_needs_no_api_server(world):
    """Its pod was asked about when it was bound; a new one is asked about."""
    asked = []

    async def concerned(pod):
        asked.append(pod.name)
        return False

    async with world.serving(world.dependencies(late=True)):
        world.binder._needs = replace(world.binder._needs, concerned=concerned)
        await admitted(world, ASKS)
        for _ in range(3):
            await world.kubelet.start_container(JOB)
        assert asked == ["job"]


async def test_what_was_promised_outlives_the_agent(world):
    """Killed between Allocate and ADD, and between ADD and the start."""
    async with world.kubelet:
        async with running(world.dependencies(late=True)):
            await admitted(world, ASKS)
        world.journal.close()
        async with running(world.dependencies(late=True)):
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
            await attach(world)
        world.journal.close()
        async with running(world.dependencies(late=True)):
            await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)
            await world.kubelet.start_container(JOB)
            assert len(files(world)) == 1


async def test_a_late_del_touches_nothing_of_the_next_pod(world):
    async with world.serving(world.dependencies(late=True)):
        await admitted(world, ASKS)
        await attach(world)
        world.kubelet.remove_pod("job")
        await world.binder.detach(SANDBOX)
        await admitted(world, ASKS, place=ContainerPlace("next"))
        await world.binder.attach(
            Sandbox(
                ContainerId("b"), PodName("default", "next"), "u2", f"{world.folder}/netns/y", 2
            )
        )
        await world.binder.detach(SANDBOX)
        await world.kubelet.start_container(ContainerPlace("next"))


async def test_a_full_disk_gives_nothing_away(world):
    """No promise without its record: the pod fails with the sentence, the share stays free."""
    async with world.serving(world.dependencies(late=True)):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 4)

        def full(name, value):
            raise Unavailable("No space left on device.")

        world.journal.put = full
        with pytest.raises(GRPCError, match="No space left"):
            await world.kubelet.allocate(VKE, 1)
        assert world.kubelet.held(VKE) == set()


@pytest.fixture
def early_world(tmp_path_factory, recording, monkeypatch):
    monkeypatch.setattr(loop, "PENDING_SECONDS", 0.02)
    found = World(tmp_path_factory.mktemp("w"), hard_card(0), hard_card(1))
    found.label("shared")
    return found


class Runtime:
    """What the container runtime answers, and how often it was asked."""

    def __init__(self, early_world):
        self.works, self.asked = False, 0
        binding = early_world.dependencies(late=True).late.now
        self.late = LateBindingChoice(
            NoLateBinding("it is not known"), self.ask, lambda: binding, seconds=0.01
        )

    async def ask(self):
        self.asked += 1
        return self.works, "containerd is 2.1 and CDI is on."


async def test_late_binding_comes_when_the_runtime_answers_and_no_pod_holds_a_share(
    early_world, recording
):
    runtime = Runtime(early_world)
    async with early_world.serving(replace(early_world.dependencies(), late=runtime.late)):
        await early_world.kubelet.until(lambda: early_world.kubelet.healthy(VKE) == 2)
        early = await early_world.kubelet.allocate(VKE, 1, place=ContainerPlace("early"))
        assert early.devices, "given at Allocate"
        await until(lambda: runtime.asked > 2)
        assert not recording.of("mode change pending")
        runtime.works = True
        await recording.wait_for("mode change pending")
        assert "default/early" in recording.of("mode change pending")[0]["what"]
        early_world.kubelet.remove_pod("early")
        await recording.wait_for("mode change applied")
        await until(lambda: len(recording.of("registered")) == 2)
        await early_world.kubelet.until(lambda: early_world.kubelet.healthy(VKE) == 2)
        late = await early_world.kubelet.allocate(VKE, 1, place=ContainerPlace("late"))
        assert not late.devices
        assert [device.name for device in late.cdi_devices], "a name for what is bound later"
        asked = runtime.asked
    assert runtime.asked == asked, "it is asked no more"
    assert len(recording.of("late binding available")) == 1
