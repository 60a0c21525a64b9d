"""Claims are prepared once and for all: over crashes at every step, restarts and reboots."""

from __future__ import annotations

import asyncio

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.journal.codec import CLAIMS
from kube_rdma.adapters.journal.journal import Journal
from kube_rdma.adapters.runtime.cdi import CdiFolder
from kube_rdma.adapters.runtime.settings import PodSettings
from kube_rdma.attach.claim_settings import ClaimSettings
from kube_rdma.claims.prepared_claims import ClaimDependencies, PreparedClaims, no_holders
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.claims.claim import ClaimName, ClaimUse, ClaimUser, PodClaims, ResourceClaim
from kube_rdma.model.holdings import ClaimingSandbox
from kube_rdma.model.late_binding import ContainerId, Edits, PodName, PodSandbox
from kube_rdma.model.pools import Mode, PoolSpec, RdmaLimits
from kube_rdma.pools.rules.pools import resolve
from kube_rdma_testing.disk import Failing, FakeDisk, Killed
from kube_rdma_testing.runtime.cdi import FakeCdiRuntime
from tests.kit.nodes import CHAR_KINDS, hard_card, node
from tests.unit.claims.rules.test_prepare import result

FIRST, SECOND = hard_card(0x81, 0, kinds=CHAR_KINDS), hard_card(0xA1, 1, kinds=CHAR_KINDS)
MULTI = PoolSpec("rdma/multi", Mode.SHARED_MULTI, "config.json:1", shares=4)
CLAIM = ClaimName("team", "job-0-nic-x7", "uid-1")
POD = PodClaims("team", "job-0", "uid-job-0", (("nic", CLAIM.name),))
JOB = PodName("team", "job-0")
NODES_OF_FIRST = tuple(f"/dev/infiniband/{name}" for name in ("rdma_cm", "uverbs0"))


class World:
    """A node with its disk, its CDI folder and the cluster's claims; agents come and go."""

    def __init__(self, folder):
        self.disk = FakeDisk()
        self.cdi = folder / "cdi"
        self.boot = "b00t"
        self.claims = {}
        self.pods = {JOB: POD}
        self.reads, self.said = 0, {}
        self.holders, self.sandboxes = no_holders, []
        self.specs, self.cards = (MULTI,), (FIRST, SECOND)
        self.put(CLAIM)

    def put(self, name, *results):
        """A claim that the scheduler has allocated, in place of another of its name."""
        devices = results or (result(share="s1", slots=1),)
        users = (ClaimUser("pods", "job-0", "uid-job-0"),)
        self.claims[name.namespace, name.name] = ResourceClaim(name, allocated=devices, users=users)

    def agent(self, disk=None, cdi=None, *, offered=True, hold=None):
        """An agent that has started on this node."""

        async def read(name):
            self.reads += 1
            await asyncio.sleep(0)
            return self.claims.get((name.namespace, name.name))

        async def pod(name):
            return self.pods.get(name)

        journal = Journal(disk or self.disk, CLAIMS)

        async def listed():
            return self.sandboxes

        cdi = cdi or CdiFolder(self.cdi)
        to = ClaimDependencies(journal, cdi, read, pod, listed, "node-1", self.boot, settled=0.0)
        claims = PreparedClaims(replace(to, holders=self.holders, hold=hold))
        if offered:
            claims.offered(self.pools())
        return claims

    async def say(self, claim, devices):
        """The status of a claim is written."""
        self.said[claim] = devices

    def pools(self):
        pools, _ = resolve(self.specs, self.cards, node().survey)
        return {pool.spec.resource: pool for pool in pools}

    def reboot(self):
        """The power fails: what the disk had not synced is lost, and /run is empty."""
        self.disk.crash()
        for path in self.cdi.glob("*"):
            path.unlink()
        self.boot = "next"

    def container(self, *devices):
        """What the runtime gives a container with the CDI devices of an answer."""
        names = [name for device in devices for name in device.cdi]
        return FakeCdiRuntime(self.cdi).create(*names)

    @property
    def files(self):
        return [path.name for path in self.cdi.glob("*.json")] if self.cdi.exists() else []


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_a_claim_is_there_for_containers_when_the_kubelet_is_answered(world):
    agent = world.agent()
    devices = await agent.prepare(CLAIM)
    assert [(one.pool, one.device, one.requests, one.share) for one in devices] == [
        ("node-1", "0000-81-00-0", ("nic",), "s1")
    ]
    assert world.container(*devices).char_paths == NODES_OF_FIRST
    assert agent.cards() == {FIRST.id}


OTHER = ClaimName("team", "job-1-nic-x8", "uid-2")


class TestAKubeletThatLostItsRecord:
    """It gives no claim back, and a scheduler knows only what the API server has."""

    @pytest.fixture
    async def agent(self, world):
        world.specs = (replace(MULTI, mode=Mode.EXCLUSIVE, shares=None),)
        agent = world.agent()
        world.put(CLAIM, result())
        await agent.prepare(CLAIM)
        world.put(OTHER, result())
        return agent

    async def test_what_a_claim_has_is_not_given_again_while_its_pod_runs(self, world, agent):
        """Whether the API server has the claim, or neither and its containers end just now."""
        del world.pods[JOB]
        with pytest.raises(Unavailable, match="job-0-nic-x7 hold 1"):
            await agent.prepare(OTHER)
        del world.claims[CLAIM.namespace, CLAIM.name]
        world.sandboxes = [PodSandbox("c1", JOB, "uid-job-0", ready=True)]
        with pytest.raises(Unavailable, match="job-0-nic-x7 hold 1"):
            await agent.prepare(OTHER)
        await agent.restore()
        with pytest.raises(Unavailable, match="job-0-nic-x7 hold 1"):
            await agent.prepare(OTHER)

    @pytest.mark.parametrize("left", [[], [PodSandbox("c1", JOB, "uid-job-0", ready=False)]])
    async def test_it_is_free_when_the_pod_is_gone(self, world, agent, left):
        """A claim of its name is another one."""
        del world.pods[JOB]
        world.put(replace(CLAIM, uid="uid-3"))
        world.sandboxes = left
        await agent.prepare(OTHER)
        assert [one.claim for one in agent.booked] == [OTHER]


async def test_limits_are_held_before_the_kubelet_is_answered(world):
    """Whenever it asks: a pod that the first answer did not reach may not have begun then."""
    held = []

    async def hold(prepared):
        held.append((prepared.claim, prepared.users))

    world.specs = (replace(MULTI, limits=RdmaLimits(objects=100)),)
    agent = world.agent()
    with pytest.raises(Refused, match="the agent runs without --networks"):
        await agent.prepare(CLAIM)
    agent = world.agent(hold=hold)
    for count in (1, 2):
        await agent.prepare(CLAIM)
        assert len(held) == count
    assert held[0] == (CLAIM, (ClaimUser("pods", "job-0", "uid-job-0"),))


async def test_what_cannot_be_held_is_not_answered(world):
    async def hold(prepared):
        raise Unavailable("The node has no control group of the pod.")

    world.specs = (replace(MULTI, limits=RdmaLimits(objects=100)),)
    with pytest.raises(Unavailable, match="no control group"):
        await world.agent(hold=hold).prepare(CLAIM)
    world.specs = (MULTI,)
    await world.agent(hold=hold).prepare(CLAIM)


async def test_preparing_twice_is_one_answer_and_no_question(world):
    agent = world.agent()
    devices = await agent.prepare(CLAIM)
    world.claims.clear()
    assert await agent.prepare(CLAIM) == devices
    assert world.reads == 1
    again = world.agent()
    assert await again.prepare(CLAIM) == devices, "by another process too"
    assert world.reads == 1


async def test_a_file_that_somebody_removed_is_there_again_before_the_answer(world):
    agent = world.agent()
    devices = await agent.prepare(CLAIM)
    for path in world.cdi.glob("*"):
        path.unlink()
    assert await agent.prepare(CLAIM) == devices
    assert world.container(*devices).char_paths == NODES_OF_FIRST


async def test_what_is_given_back_is_gone_and_the_unknown_may_be_given_back(world):
    agent = world.agent()
    await agent.prepare(CLAIM)
    for _ in range(2):
        await agent.unprepare(CLAIM)
        assert (world.files, agent.booked, agent.cards()) == ([], (), frozenset())
    await agent.unprepare(ClaimName("team", "never", "uid-never"))


async def test_nothing_is_prepared_before_the_cards_are_known(world):
    agent = world.agent(offered=False)
    with pytest.raises(Unavailable, match="just started"):
        await agent.prepare(CLAIM)
    assert world.reads == 0
    agent.offered(world.pools())
    assert await agent.prepare(CLAIM)


async def test_many_claims_at_once_get_no_more_than_a_card_has(world):
    names = [ClaimName("team", f"c{number}", f"uid-c{number}") for number in range(6)]
    for name in names:
        world.put(name)
    answers = await asyncio.gather(*map(world.agent().prepare, names), return_exceptions=True)
    assert sum(isinstance(one, tuple) for one in answers) == MULTI.shares
    assert all(isinstance(one, tuple | Unavailable) for one in answers)


async def test_after_a_reboot_files_are_there_before_the_kubelet_is_asked(world):
    """With the nodes of this boot: the kernel numbers devices as they come."""
    devices = await world.agent().prepare(CLAIM)
    world.reboot()
    world.cards = (hard_card(0x81, 7, kinds=CHAR_KINDS), SECOND)
    agent = world.agent()
    assert world.files == []
    await agent.restore()
    assert "/dev/infiniband/uverbs7" in world.container(*devices).char_paths
    assert await agent.prepare(CLAIM) == devices
    assert {one.boot for one in agent.booked} == {"next"}


async def test_a_claim_that_cannot_be_restored_keeps_no_other_from_its_containers(world):
    """Nor the kubelet from the driver, which was told of none."""
    other = ClaimName(CLAIM.namespace, "other", "uid-other")
    world.put(other, result(share="s2", slots=1))
    agent = world.agent()
    await agent.prepare(CLAIM)
    devices = await agent.prepare(other)
    world.reboot()

    class FailingCdi(CdiFolder):
        def write_claim(self, uid, devices):
            if uid == CLAIM.uid:
                raise AttributeError("x")
            return super().write_claim(uid, devices)

    await world.agent(cdi=FailingCdi(world.cdi)).restore()
    assert world.container(*devices).char_paths


@pytest.mark.parametrize("pods", [{}, {JOB: replace(POD, uid="another")}], ids=["none", "a later"])
async def test_a_claim_that_went_while_nobody_ran_is_forgotten(world, recording, pods):
    await world.agent().prepare(CLAIM)
    world.claims.clear()
    world.pods = pods
    agent = world.agent()
    await agent.restore()
    assert (agent.booked, world.files) == ((), [])
    assert recording.of("claim ended without a word")


@pytest.mark.parametrize("claims", [{}, {"nic-b2": "uid-2"}], ids=["none", "a later"])
async def test_a_pod_whose_claim_a_restore_of_etcd_took_keeps_its_devices(world, recording, claims):
    """`make chaos`, seed 81: its new claim is another, and nobody else may be given its card."""
    devices = await world.agent().prepare(CLAIM)
    world.claims.clear()
    for name, uid in claims.items():
        world.put(ClaimName("team", name, uid))
    agent = world.agent()
    await agent.restore()
    assert agent.cards() == {FIRST.id}
    assert world.container(*devices).char_paths == NODES_OF_FIRST
    assert recording.of("claim gone under its pod")


@pytest.mark.parametrize("error", [Unavailable("The API server is away."), AttributeError("x")])
async def test_while_the_cluster_does_not_tell_a_claim_is_kept(world, recording, error):
    devices, told = await world.agent().prepare(CLAIM), []

    async def away(_):
        raise error

    agent = world.agent()
    agent._dependencies = replace(agent._dependencies, read=away, tell=told.append)
    await agent.restore()
    assert world.container(*devices).char_paths == NODES_OF_FIRST
    assert len(recording.of("claim not read")) == isinstance(error, Unavailable)
    assert len(told) == isinstance(error, AttributeError)


async def test_a_file_without_a_record_goes_at_the_start(world):
    CdiFolder(world.cdi).write_claim("uid-lost", [("kube-rdma.io/claim=x", Edits(("/dev/a",)))])
    await world.agent().restore()
    assert world.files == []


async def test_what_a_network_made_stands_for_the_claim(world):
    """A device that moved into the pod has other nodes; the same answer means these from now on."""
    agent = world.agent()
    devices = await agent.prepare(CLAIM)
    (held,) = agent.holdings()
    await agent.attach({(held.resource, held.shares[0]): Edits(("/dev/infiniband/uverbs9",))})
    assert world.container(*devices).char_paths == ("/dev/infiniband/uverbs9",)
    again = world.agent()
    await again.restore()
    assert await again.prepare(CLAIM) == devices
    assert world.container(*devices).char_paths == ("/dev/infiniband/uverbs9",)


async def test_containers_have_settings_while_their_sandbox_is_there(world, tmp_path):
    agent = world.agent()
    folder = PodSettings(tmp_path / "settings")
    agent._dependencies = replace(agent._dependencies, settings=ClaimSettings(folder))
    await agent.prepare(CLAIM)
    sandbox = Sandbox(ContainerId("s1"), JOB, "uid-job-0", "/run/netns/a", 7)
    holdings = [replace(held, container="main") for held in agent.holdings()]
    await agent.settle(ClaimingSandbox(sandbox, holdings, {}, {}))
    path = folder.path / "s1/main/nccl.conf"
    assert f"NCCL_IB_HCA=={FIRST.devices[0].name}" in path.read_text()
    await agent.detach("s1")
    assert not path.exists()


async def test_a_second_pod_of_a_claim_has_it_without_a_call_of_the_kubelet(world):
    agent = world.agent()
    await agent.prepare(CLAIM)
    second = PodName("team", "job-1")
    use = ClaimUse("main", "nic")
    world.pods[second] = PodClaims("team", "job-1", "uid-job-1", POD.claims, (use,))
    (held,) = await agent.holdings_of(second)
    assert held.container == "main"
    await agent.holdings_of(JOB)
    assert {one.pod for one in agent.holdings()} == {"job-0", "job-1"}
    await agent.unprepare(CLAIM)
    assert agent.holdings() == ()


class KilledCdi(CdiFolder):
    """The process ends before or after a file of a claim is written or removed."""

    def __init__(self, path, *, before):
        super().__init__(path)
        self._before = before

    def write_claim(self, uid, devices):
        if not self._before:
            super().write_claim(uid, devices)
        raise Killed

    def remove_claim(self, uid):
        if not self._before:
            super().remove_claim(uid)
        raise Killed


async def steps_of(world, act):
    """How many steps of the disk an act has."""
    disk = Failing(world.disk)
    await act(world.agent(disk))
    return disk.steps


async def recovered(world, lost):
    """After the crash: the next agent starts, the kubelet asks again, and gives back."""
    world.disk.crash(lost)
    agent = world.agent()
    await agent.restore()
    devices = await agent.prepare(CLAIM)
    assert world.container(*devices).char_paths == NODES_OF_FIRST
    assert len(agent.booked) == len(world.files) == 1
    await agent.unprepare(CLAIM)
    assert (agent.booked, world.files, world.disk.names()) == ((), [], ())
    return devices


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_kill_at_any_step_of_preparing_leaves_nothing_half_done(tmp_path, lost):
    expected = await World(tmp_path / "whole").agent().prepare(CLAIM)
    steps = await steps_of(World(tmp_path / "count"), lambda agent: agent.prepare(CLAIM))
    assert steps >= 5
    for at in range(steps):
        world = World(tmp_path / str(at))
        with pytest.raises(Killed):
            await world.agent(Failing(world.disk, at)).prepare(CLAIM)
        assert world.files == [], "no file without a record"
        assert await recovered(world, lost) == expected


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_kill_at_any_step_of_giving_back_leaves_nothing_half_done(tmp_path, lost):
    async def given_back(agent):
        await agent.unprepare(CLAIM)

    counted = World(tmp_path / "count")
    await counted.agent().prepare(CLAIM)
    for at in range(await steps_of(counted, given_back)):
        world = World(tmp_path / str(at))
        await world.agent().prepare(CLAIM)
        with pytest.raises(Killed):
            await world.agent(Failing(world.disk, at)).unprepare(CLAIM)
        assert world.files == [], "the file goes first"
        await recovered(world, lost)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("act", ["prepare", "unprepare"])
async def test_a_kill_beside_the_file_leaves_nothing_half_done(world, act, before):
    if act == "unprepare":
        await world.agent().prepare(CLAIM)
    agent = world.agent(cdi=KilledCdi(world.cdi, before=before))
    with pytest.raises(Killed):
        await getattr(agent, act)(CLAIM)
    await recovered(world, 0)


async def test_without_a_disk_nothing_is_prepared_and_yet_everything_ends(world):
    agent = world.agent()
    world.disk.read_only = True
    with pytest.raises(Unavailable, match="cannot be written"):
        await agent.prepare(CLAIM)
    assert world.files == []
    world.disk.read_only = False
    await agent.prepare(CLAIM)
    world.disk.read_only = True
    await agent.unprepare(CLAIM)
    assert (agent.booked, world.files) == ((), []), "no pod waits for a disk to end"


async def test_a_record_of_another_version_is_left_alone(world, recording):
    await world.agent().prepare(CLAIM)
    name = f"{CLAIM.uid}.json"
    content = world.disk.read(name).replace(b'"version":1', b'"version":2')
    handle = world.disk.create(name)
    world.disk.write(handle, content)
    world.disk.close(handle)
    agent = world.agent()
    await agent.restore()
    assert world.files, "its file stays too"
    assert agent.cards() is None
    for act in (agent.prepare, agent.unprepare):
        with pytest.raises(Unavailable, match="does not understand"):
            await act(CLAIM)
