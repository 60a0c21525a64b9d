"""Shares with limits: the kernel holds the pod to them before any container begins."""

import pytest

from kube_base.errors import Broken, KubeError, Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.cgroups import RdmaGroups
from kube_rdma.attach.share_limits import RoundDependencies, ShareLimitRounds, ShareLimits
from kube_rdma.model.attach.attachment import Attachment
from kube_rdma.model.claims.claim import ClaimName, ClaimUser, PreparedClaim
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import PodName, PodSandbox
from kube_rdma.model.pools import (
    DeviceLimits,
    DeviceUse,
    Mode,
    PodDeviceUse,
    Pool,
    PoolSpec,
    RdmaLimits,
)
from kube_rdma_testing.kernel.cgroups import FakeCgroups
from tests.unit.attach.network_world import POD, RESOURCE, UID, World, card, config, share

LIMITS = RdmaLimits(4, 100)
TWICE = RdmaLimits(8, 200)
GROUP = f"kubepods/burstable/pod{UID}"


@pytest.fixture
def files():
    """The control groups of a node, with that of the pod."""
    made = FakeCgroups()
    made.make(GROUP, delegated=False)
    for number in range(2):
        made.register(f"mlx5_{number}")
    return made


def pools(limits=LIMITS):
    spec = PoolSpec(RESOURCE, Mode.SHARED_MULTI, "s", limits=limits)
    return {RESOURCE: Pool(spec, (), ())}


def limits_of(files, uid=UID):
    groups = RdmaGroups(files)
    return {one.device: one.limits for one in groups.read(groups.find(uid)).limits}


class TestAnAdd:
    """Of a pod that holds a share of each of two cards."""

    @pytest.fixture
    def world(self, tmp_path, files):
        shares = [share(card(number), Mode.SHARED_MULTI) for number in range(2)]
        networks = {"default/rdma": config("macvlan")}
        made = World(tmp_path, [one.cards[0] for one in shares], shares, networks)
        made.limits = ShareLimits(RdmaGroups(files), pools)
        made.start()
        made.sandbox()
        made.ask("rdma,rdma")
        return made

    async def test_the_pod_is_held_to_its_shares_and_another_is_not(self, world, files):
        files.make("kubepods/podother")
        await world.add(1)
        assert limits_of(files) == {"mlx5_0": LIMITS, "mlx5_1": LIMITS}
        assert set(limits_of(files, "other").values()) == {RdmaLimits()}

    async def test_two_shares_of_one_card_have_their_sum(self, world, files):
        first = world.node.shares[0]
        world.node.shares = (first, replace(first, share="another"))
        await world.add(1)
        assert limits_of(files)["mlx5_0"] == TWICE

    async def test_what_cannot_be_held_is_refused_and_leaves_nothing(self, world):
        world.limits = ShareLimits(None, pools)
        world.start()
        await world.refuses(1, r"Install kube-rdma with agent\.shareLimits=true")

    async def test_a_node_of_cgroup_v1_refuses_it(self, world):
        world.limits = ShareLimits(RdmaGroups(FakeCgroups(v1=True)), pools)
        world.start()
        await world.refuses(1, "this node has cgroup v1")

    async def test_a_pod_without_a_group_does_not_start(self, world, files):
        files.end(GROUP)
        await world.refuses(1, "no control group of the pod", Unavailable)

    async def test_a_pod_that_asks_for_no_network_is_held_by_its_claims(self, world, files):
        """The kubelet prepares a claim once, so that of its second pod is heard of here first."""
        world.node.annotations.clear()
        world.node.settle = lambda *_: world.node.holdings(POD)
        await world.add(1)
        assert limits_of(files)["mlx5_0"] == LIMITS

    async def test_without_limits_no_group_is_looked_at(self, world):
        world.limits = ShareLimits(None, lambda: pools(None))
        world.start()
        await world.add(1)

    async def test_a_device_that_counts_nothing_is_told_of_and_stops_no_pod(self, world, files):
        files.unregister("mlx5_1")
        await world.add(1)
        assert limits_of(files) == {"mlx5_0": LIMITS}


def test_what_a_pod_has_is_read_beside_what_it_may_have(files):
    groups = RdmaGroups(files)
    groups.write(groups.switch_on(UID), [DeviceLimits("mlx5_0", LIMITS)])
    files.charge(GROUP, "mlx5_0")
    pods = {UID: POD, "gone": POD}
    (use,) = ShareLimits(groups, pools).uses(pods)
    assert use == PodDeviceUse(POD.namespace, POD.name, DeviceUse("mlx5_0", 0, 1), LIMITS)
    assert ShareLimits(groups, lambda: pools(None)).uses(pods) == ()
    assert ShareLimits(None, pools).uses(pods) == ()


class Forgetful(FakeCgroups):
    """A kernel that takes what is written and does not keep it."""

    def write(self, path, text):
        if not path.endswith("rdma.max"):
            super().write(path, text)


async def test_what_the_kernel_does_not_keep_is_found_by_reading_it_back():
    files = Forgetful()
    files.make(GROUP)
    files.register("mlx5_0")
    limits = ShareLimits(RdmaGroups(files), pools)
    with pytest.raises(Broken, match="did not keep the limits of mlx5_0"):
        await limits.hold(UID, [share(card(0), Mode.SHARED_MULTI)])


class Node:
    """What the rounds ask; `asked` counts how often the kubelet was."""

    def __init__(self, files):
        self.now, self.asked = LIMITS, 0
        self.sandboxes = [PodSandbox("c1", POD, UID, ready=True)]
        self.attachments: list[Attachment] = []
        self.failing, self.silent, self.held_by = (
            None,
            False,
            (POD, PodName("default", "elsewhere")),
        )
        self.share = share(card(0), Mode.SHARED_MULTI)
        limits = ShareLimits(RdmaGroups(files) if files else None, lambda: pools(self.now))
        to = RoundDependencies(
            limits, self.listed, self.holdings, self.granted, lambda: self.attachments
        )
        self.rounds = ShareLimitRounds(to)

    async def listed(self):
        return tuple(self.sandboxes)

    async def holdings(self):
        self.asked += 1
        names = (self.share.share, "another")
        held = zip(self.held_by, names, strict=False)
        holdings = (Holding(pod.namespace, pod.name, "main", RESOURCE, (s,)) for pod, s in held)
        return None if self.silent else tuple(holdings)

    def granted(self, holdings):
        if self.failing:
            raise self.failing
        return (self.share,)


@pytest.fixture
def node(files):
    return Node(files)


async def test_a_round_holds_a_pod_that_had_no_add(node, files):
    await node.rounds.round()
    assert limits_of(files)["mlx5_0"] == LIMITS


async def test_what_a_pod_without_a_network_has_is_read_until_it_ends(node, files):
    """Whether a round or the start of its container held it; nobody attached anything to it."""
    await node.rounds.round()
    files.charge(GROUP, "mlx5_0")
    expected = PodDeviceUse(POD.namespace, POD.name, DeviceUse("mlx5_0", 0, 1), LIMITS)
    assert node.rounds.uses() == (expected,)
    started = Node(files)
    await started.rounds.before_start(RESOURCE, [started.share.share])
    assert started.rounds.uses() == (expected,)
    started.sandboxes = []
    await started.rounds.round()
    assert started.rounds.uses() == ()


class TestBeforeAContainerStarts:
    """Of a pod that asks for no network, as one on the node's own network."""

    async def test_its_limits_are_written_before_it_is_answered(self, node, files):
        await node.rounds.before_start(RESOURCE, [node.share.share])
        assert limits_of(files)["mlx5_0"] == LIMITS
        for _ in range(LIMITS.objects):
            files.charge(GROUP, "mlx5_0")
        with pytest.raises(BlockingIOError):
            files.charge(GROUP, "mlx5_0")

    async def test_a_container_that_starts_again_changes_nothing(self, node, files):
        await node.rounds.before_start(RESOURCE, [node.share.share])
        count = len(files.writes)
        await node.rounds.before_start(RESOURCE, [node.share.share])
        assert len(files.writes) == count

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({"sandboxes": []}, "shows no sandbox of pod default/train-0 yet"),
            ({"silent": True}, "kubelet does not report which pod holds"),
            ({"failing": Unavailable("The cards are not known.")}, "cards are not known"),
            ({"held_by": ()}, "no pod holds share"),
        ],
    )
    async def test_it_does_not_start_while_nobody_can_tell_whose_it_is(self, node, change, why):
        for name, value in change.items():
            setattr(node, name, value)
        with pytest.raises(KubeError, match=why):
            await node.rounds.before_start(RESOURCE, [node.share.share])

    async def test_nor_where_the_agent_sees_no_groups(self):
        node = Node(None)
        with pytest.raises(Refused, match=r"agent\.shareLimits=true"):
            await node.rounds.before_start(RESOURCE, [node.share.share])


class TestBeforeAClaimIsPrepared:
    """It is held by the pods that it is reserved for."""

    def claim(self, *uids):
        users = tuple(ClaimUser("pods", POD.name, uid) for uid in uids)
        return PreparedClaim(ClaimName(POD.namespace, "nic", "u"), (), users, "boot", 0.0)

    async def test_their_limits_are_written_before_the_kubelet_is_answered(self, node, files):
        """One that has not begun has no group yet; its own call comes."""
        await node.rounds.prepared(self.claim("uid-later", UID))
        assert limits_of(files)["mlx5_0"] == LIMITS

    async def test_without_a_group_of_any_of_them_it_is_refused(self, node):
        with pytest.raises(Unavailable, match="no control group of the pod with uid uid-later"):
            await node.rounds.prepared(self.claim("uid-later"))

    async def test_other_kinds_of_users_have_no_group(self, node):
        claim = replace(self.claim(), users=(ClaimUser("podgroups", "team", "u-team"),))
        await node.rounds.prepared(claim)


async def test_a_round_writes_nothing_that_is_so_already(node, files):
    await node.rounds.round()
    count = len(files.writes)
    await node.rounds.round()
    assert len(files.writes) == count


async def test_a_device_that_was_registered_anew_is_limited_again(node, files):
    await node.rounds.round()
    files.unregister("mlx5_0")
    files.register("mlx5_0")
    assert limits_of(files)["mlx5_0"] == RdmaLimits()
    await node.rounds.round()
    assert limits_of(files)["mlx5_0"] == LIMITS


async def test_another_policy_counts_for_pods_that_run(node, files):
    await node.rounds.round()
    node.now = TWICE
    await node.rounds.round()
    assert limits_of(files)["mlx5_0"] == TWICE


@pytest.mark.parametrize("restarted", [False, True])
async def test_limits_that_nobody_wants_any_more_are_lifted_once(node, files, restarted):
    await node.rounds.round()
    node = Node(files) if restarted else node
    node.now = None
    await node.rounds.round()
    assert limits_of(files)["mlx5_0"] == RdmaLimits()
    asked = node.asked
    await node.rounds.round()
    assert node.asked == asked


async def test_where_nothing_is_limited_and_no_group_is_seen_nobody_is_asked():
    node = Node(None)
    node.now = None
    await node.rounds.round()
    assert node.asked == 0


async def test_what_cannot_be_held_for_one_pod_holds_up_no_other(node, files):
    gone = PodSandbox("c0", PodName("default", "elsewhere"), "uid-gone", ready=True)
    node.sandboxes.insert(0, gone)
    await node.rounds.round()
    assert limits_of(files)["mlx5_0"] == LIMITS


async def test_a_share_that_cannot_be_looked_up_now_waits_for_the_next_round(node, files):
    node.failing = Unavailable("The cards of this node are not known yet.")
    await node.rounds.round()
    node.failing = None
    await node.rounds.round()
    assert limits_of(files)["mlx5_0"] == LIMITS


async def test_a_sandbox_that_has_stopped_is_left_alone(node, files):
    node.sandboxes = [replace(node.sandboxes[0], ready=False)]
    await node.rounds.round()
    assert not [path for path, _ in files.writes if path.endswith("rdma.max")]
