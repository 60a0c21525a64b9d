"""An agent that is killed after any of its acts leaves nothing behind, and stands in nobody's way.

The acts are counted over all that an agent changes: messages to the kernel, steps on the journal's
disk, addresses, late binding, status. Each test kills it after one of them, then after a later one.
`make test-all` does so after each act of each plan, `make test` after some, others for each plan;
`make check`, which people run all the time, after half of these.
"""

from itertools import count

import pytest
from hypothesis import settings

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.model.attach.attachment import AttachmentKey
from kube_rdma.model.attach.cni import CniResult
from kube_rdma.model.claims import claim
from kube_rdma.model.pools import Mode, ShareId
from kube_rdma_testing.kernel.network import KilledError
from tests.unit.attach.network_world import World, card, config, container, share, site_ipam


def world(kind, mode, *cards, asks="net", fields=None, **further):
    """A world whose pod has a share of each card, and asks for networks of this kind."""

    def made(folder):
        shares = [share(each, mode) for each in cards]
        networks = {
            "default/net": config(kind, **(fields or {})),
            "default/other": config("bridge"),
            "default/site": config(kind, **(fields or {}), ipam=site_ipam()),
        }
        found = World(folder, cards, shares, networks, **further)
        found.ask(asks)
        return found

    return made


def claimed(kind, mode, *cards, fields=None):
    """The same of a pod without an annotation, whose claims for each card name the network."""

    def made(folder):
        shares = [by_claim(each, mode) for each in cards]
        networks = {"default/net": (None, config(kind, **(fields or {}))[1])}
        found = World(folder, cards, shares, networks)
        found.node.claimed_devices = tuple(map(claim_device, shares))
        return found

    return made


def by_claim(of, mode):
    """A share by a claim, which is called as bookings call it; a function is called as it is."""
    plain = share(of, mode)
    name = of.id if mode is Mode.SRIOV else f"{of.id}-{CLAIM.uid}.0"
    return replace(plain, container="", share=ShareId(name))


def claim_device(granted):
    """The interface that the parameters of the claim ask for."""
    (of,) = granted.cards
    booked = claim.ClaimShare(
        request="nic",
        pool="node-1",
        device=of.id,
        share_id=None,
        resource=granted.resource,
        share=granted.share,
        cards=(of.id,),
        slots=1,
        char_paths=(),
        parameters=claim.ClaimParameters(network=claim.NetworkReference("net", "default")),
    )
    return claim.ClaimDevice(CLAIM, booked)


CLAIM = claim.ClaimName("default", "train-0-nic", "uid-claim")
CARD, WIDE = card(0), card(0, virtual=True, wide=True)
FUNCTION = {
    "mac": "02:00:00:00:09:01",
    "vlan": 100,
    "vlanQoS": 3,
    "vlanProto": "802.1ad",
    "spoofchk": "off",
    "trust": "on",
    "link_state": "enable",
    "min_tx_rate": 10,
    "max_tx_rate": 100,
}
WITH_MAC = '[{"name": "net", "mac": "02:00:00:00:09:02"}]'
WITH_GUID = '[{"name": "net", "infiniband-guid": "02:00:00:00:00:00:00:77"}]'
PLANS = {
    "macvlan with rxe": world("macvlan", Mode.SHARED_MULTI, card(0, soft=True)),
    "macvlan on RDMA hardware": world("macvlan", Mode.SHARED_MULTI, CARD),
    "ipvlan": world("ipvlan", Mode.SHARED_MULTI, CARD),
    "a whole card": world("host-device", Mode.EXCLUSIVE, CARD),
    "a whole card with rxe": world("host-device", Mode.EXCLUSIVE, card(0, soft=True)),
    "a virtual function": world("kube-rdma", Mode.SRIOV, card(0, virtual=True)),
    "a virtual function that is set up": world(
        "sriov", Mode.SRIOV, card(0, virtual=True), fields=FUNCTION
    ),
    "a virtual function with RDMA of its own": world(
        "sriov",
        Mode.SRIOV,
        card(0, virtual=True),
        asks=WITH_MAC,
        fields={"vlan": 7, "trust": "on"},
        exclusive_rdma=True,
    ),
    "two virtual functions with rxe": world(
        "sriov",
        Mode.SRIOV,
        card(0, virtual=True, soft=True),
        card(1, virtual=True, soft=True),
        asks="net,net",
        fields={"vlan": 7},
    ),
    "a function of InfiniBand": world(
        "ib-sriov", Mode.SRIOV, WIDE, fields={"link_state": "enable"}
    ),
    "a GUID": world("ib-sriov", Mode.SRIOV, WIDE, asks=WITH_GUID),
    "a GUID and RDMA of its own": world(
        "ib-sriov", Mode.SRIOV, WIDE, asks=WITH_GUID, exclusive_rdma=True
    ),
    "a GUID and a partition": world(
        "ib-sriov", Mode.SRIOV, WIDE, asks=WITH_GUID, fields={"pkey": "0x8012"}
    ),
    "a function of InfiniBand by its mode": world("kube-rdma", Mode.SRIOV, WIDE),
    "a GUID and RDMA of its own by its mode": world(
        "kube-rdma", Mode.SRIOV, WIDE, asks=WITH_GUID, exclusive_rdma=True
    ),
    "a partition and RDMA of its own": world(
        "ib-sriov", Mode.SRIOV, WIDE, fields={"pkey": "0x8012"}, exclusive_rdma=True
    ),
    "all that InfiniBand has": world(
        "ib-sriov",
        Mode.SRIOV,
        WIDE,
        asks=WITH_GUID,
        fields={"pkey": "0x8012", "link_state": "enable", "rdmaIsolation": True},
        exclusive_rdma=True,
    ),
    "a shared InfiniBand card": world(
        "ipoib", Mode.SHARED_MULTI, card(0, wide=True), fields={"pkey": "0x8012"}
    ),
    "RDMA of its own": world("kube-rdma", Mode.EXCLUSIVE, CARD, exclusive_rdma=True),
    "two NICs": world("macvlan", Mode.SHARED_MULTI, CARD, card(1), asks="net,net"),
    "another plugin, then ours": world(
        "macvlan", Mode.SHARED_MULTI, CARD, card(1), asks="other,net"
    ),
    "ours, then another plugin": world(
        "macvlan", Mode.SHARED_MULTI, CARD, card(1), asks="net,other"
    ),
    "ours, then one with another's addresses": world(
        "macvlan", Mode.SHARED_MULTI, CARD, card(1, soft=True), asks="net,site"
    ),
    "a function with another's addresses, then ours": world(
        "sriov",
        Mode.SRIOV,
        card(0, virtual=True),
        card(1, virtual=True),
        asks="site,net",
        fields=FUNCTION | {"mac": None},
    ),
    "two whole cards with rxe": world(
        "kube-rdma", Mode.EXCLUSIVE, card(0, soft=True), card(1, soft=True), asks="net,net"
    ),
    "two shares of claims": claimed("macvlan", Mode.SHARED_MULTI, card(0, soft=True), card(1)),
    "a whole card of a claim": claimed("host-device", Mode.EXCLUSIVE, CARD),
    "a function of a claim": claimed(
        "sriov", Mode.SRIOV, card(0, virtual=True), fields=FUNCTION | {"mac": None}
    ),
}
EVERY = 8 if settings().max_examples < 40 else 4  # acts, in `make check` and in `make test`
WHOLE = ["a whole card", "a whole card with rxe", "a virtual function", "RDMA of its own"]
WHOLE += ["two whole cards with rxe", "a virtual function that is set up"]
WHOLE += ["a virtual function with RDMA of its own", "two virtual functions with rxe"]
WHOLE += ["a function of InfiniBand", "a GUID", "a GUID and RDMA of its own"]
WHOLE += ["a function of InfiniBand by its mode", "a GUID and RDMA of its own by its mode"]
WHOLE += ["a function with another's addresses, then ours"]
WHOLE += ["a whole card of a claim", "a function of a claim"]
WHOLE += ["a GUID and a partition", "a partition and RDMA of its own", "all that InfiniBand has"]


@pytest.fixture(params=PLANS)
def plan(request):
    return request.param


@pytest.fixture
def made(plan, tmp_path):
    return lambda k: PLANS[plan](tmp_path / str(k))


@pytest.fixture(params=[EVERY, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "each"])
def acts(request, plan):
    """The acts that are the last ones: every few, other ones of each plan; when all run, each."""
    return count(1 + list(PLANS).index(plan) % request.param, request.param)


@pytest.fixture(params=[False, True], ids=["process", "machine"])
def power_fails(request):
    """Whether the crash takes namespaces, and what the disk has not synced, with it."""
    return request.param


async def nothing(world):
    """Before an ADD there is nothing."""


async def attached(world):
    await world.add(1)


async def add(world):
    assert await world.add(1) == CniResult()


async def delete(world):
    await world.delete(1)


async def after_each_death(made, acts, prepare, work, then):
    """Kill an agent after each act of `work`, in a world of its own; `then` says what must hold."""
    for k in acts:
        world = made(k)
        world.sandbox()
        await prepare(world)
        world.start(k)
        try:
            await work(world)
        except KilledError:
            done = world.life.acts
        else:
            assert k > 4, "it died of nothing"
            return
        try:
            await then(world)
        except Exception as error:
            error.add_note(f"killed after act {k}, the last of: {', '.join(done)}")
            raise


async def restart(world, power_fails):
    """The agent starts again, after a kill or on a machine that lost its power.

    Then what was not synced is lost or torn, as it comes: of a lost record the runtime, which lists
    no sandbox, lets the addresses be collected, and the binder's sweep finds no namespace.
    """
    if power_fails:
        world.end(1)
        world.disk.crash(lost=world.disk.unsynced if len(world.life.acts) % 2 else 0)
    world.start()
    await world.calls.pipeline.recover()
    if power_fails and world.attachments.of(AttachmentKey(container(1))) is None:
        await world.networks.collect(frozenset(), world.networks.now())
        world.bound.clear()
    if world.attachments.of(AttachmentKey(container(1))):
        # It was killed between its last record and the answer; the runtime, which got none, calls
        # DEL. Until then the attachment is whole.
        await world.check(1)
        await world.delete(1)


async def test_after_a_crash_in_add_recovery_leaves_nothing(made, acts, power_fails):
    """Nobody has to call DEL for what was not complete."""

    async def then(world):
        await restart(world, power_fails)
        world.nothing_left(1)

    await after_each_death(made, acts, nothing, add, then)


async def test_after_a_crash_in_add_the_pod_comes_up_in_a_new_sandbox(made, acts, power_fails):
    """And the DEL of the old sandbox, which comes last, changes nothing of the new one."""

    async def then(world):
        await restart(world, power_fails)
        new = world.sandbox()
        await world.add(new)
        await world.check(new)
        before = world.inside(new), world.on_node(), dict(world.held), dict(world.bound)
        await world.delete(1)
        assert (world.inside(new), world.on_node(), world.held, world.bound) == before
        await world.holds_and_goes(new)

    await after_each_death(made, acts, nothing, add, then)


async def test_after_a_crash_in_add_the_same_add_succeeds(made, acts):
    """Also when nothing was recovered in between."""

    async def then(world):
        world.start()
        await world.add(1)
        await world.check(1)
        assert set(world.held) == set(world.bound) == {container(1)}
        await world.goes(1)

    await after_each_death(made, acts, nothing, add, then)


async def test_after_a_crash_in_del_the_next_del_ends_it(made, acts):
    """The runtime repeats a DEL until it is answered."""

    async def then(world):
        world.start()
        await world.calls.pipeline.recover()
        await world.goes(1)

    await after_each_death(made, acts, attached, delete, then)


async def test_after_a_crash_in_del_recovery_ends_what_lost_its_namespace(made, acts):
    """A machine that comes back has none of the namespaces that it had."""

    async def then(world):
        await restart(world, power_fails=True)
        world.nothing_left()

    await after_each_death(made, acts, attached, delete, then)


async def test_recovery_may_crash_as_often_as_it_likes(made, acts):
    """What it has begun is ended by the next one."""
    dry = made("dry")
    dry.sandbox()
    await dry.add(1)
    last = dry.life.acts.index("status told") + 1

    async def interrupted(world):
        world.start(last)
        with pytest.raises(KilledError):
            await world.add(1)

    async def recover(world):
        await world.calls.pipeline.recover()

    async def then(world):
        world.start()
        await world.calls.pipeline.recover()
        world.nothing_left(1)

    await after_each_death(made, acts, interrupted, recover, then)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan not in WHOLE])
async def test_a_late_del_leaves_the_next_sandbox_alone(plan, tmp_path):
    """The namespace ended by itself, and the next one is at its path (/proc/PID/ns/net).

    An IPoIB interface came back to the node meanwhile, and goes.
    """
    world = PLANS[plan](tmp_path)
    world.sandbox()
    await world.add(1)
    new = world.sandbox(world.end(1))
    await world.add(new)
    before = world.inside(new)
    await world.delete(1)
    assert (world.inside(new), world.on_node()) == (before, world.before)
    assert set(world.held) == set(world.bound) == {container(new)}
    await world.holds_and_goes(new)


async def test_a_late_del_knows_a_namespace_by_its_inode(tmp_path):
    """The next sandbox has the same path, the same address and with it the same rule."""
    ipam = {"type": "static", "addresses": [{"address": "10.9.0.7/24"}]}
    world = World(
        tmp_path, [CARD], [share(CARD, Mode.SHARED)], {"default/net": config("macvlan", ipam=ipam)}
    )
    world.ask("net")
    world.sandbox()
    await world.add(1)
    new = world.sandbox(world.end(1))
    await world.add(new)
    await world.delete(1)
    await world.check(new)


@pytest.mark.parametrize("plan", WHOLE)
async def test_a_card_waits_for_the_del_of_the_sandbox_that_had_it(plan, tmp_path):
    """The kernel brought it back with the pod's name and settings; only undoing mends it."""
    world = PLANS[plan](tmp_path)
    world.sandbox()
    await world.add(1)
    new = world.sandbox(world.end(1))
    with pytest.raises(Refused, match="Wait until the pod that has it ends"):
        await world.add(new)
    await world.delete(1)
    world.nothing_left(new)
    await world.add(new)
    await world.holds_and_goes(new)


async def test_an_answered_add_outlives_the_agent(made):
    """A restart changes nothing of a pod that runs."""
    world = made("it")
    world.sandbox()
    await world.add(1)
    before = world.inside(1), world.on_node(), dict(world.held), dict(world.bound)
    world.start()
    await world.calls.pipeline.recover()
    assert (world.inside(1), world.on_node(), world.held, world.bound) == before
    await world.check(1)


async def test_del_needs_no_api_server(made):
    """Nor the node's survey: the journal knows all."""
    world = made("it")
    world.sandbox()
    await world.add(1)
    world.node.failing = Unavailable("The API server does not answer.")
    await world.goes(1)


async def test_a_full_disk_means_no_networks(made):
    """However much fits: all is attached, or nothing is and the sentence names the disk."""
    refused = 0
    for capacity in count(0, 500):
        world = made(capacity)
        world.sandbox()
        world.disk.capacity = capacity
        try:
            await world.add(1)
        except Unavailable as error:
            assert "No space left on device" in str(error)  # noqa: PT017  some do fit
            world.nothing_left(1)
            refused += 1
        else:
            break
    assert refused > 2


async def test_a_disk_that_takes_nothing_holds_up_no_end(made):
    """DEL succeeds, full or read-only; a record that stayed is ended by the next process."""
    world = made("it")
    for is_read_only in (False, True):
        number = world.sandbox()
        await world.add(number)
        world.disk.capacity, world.disk.read_only = 0, is_read_only
        await world.delete(number)
        world.disk.capacity, world.disk.read_only = None, False
        if is_read_only:
            world.end(number)
            world.start()
            await world.calls.pipeline.recover()
        world.nothing_left()


async def test_an_add_that_fails_anywhere_gives_everything_back(made, acts):
    """Whoever of its neighbours fails, after whatever was done: the sandbox is as it was."""
    for k in acts:
        world = made(k)
        world.sandbox()
        world.start(k, Unavailable("it does not answer."))
        try:
            await world.add(1)
        except Unavailable:
            try:
                world.nothing_left(1)
            except AssertionError as error:
                error.add_note(f"failed after act {k}: {world.life.acts[k - 1]}")
                raise
        else:
            break
    assert k > 10
