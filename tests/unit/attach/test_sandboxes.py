"""Rounds over a made-up node: late attaching, eviction, orphans, addresses that nobody has."""

import asyncio
from contextlib import contextmanager
from functools import partial

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.runtime.cri import read_netns, read_sandboxes
from kube_rdma.attach import repair
from kube_rdma.attach.node_view import NodeContext
from kube_rdma.attach.rules.repair import ABSENT, GRACE, LONGEST, REFUSALS
from kube_rdma.model.attach.attachment import RESTART
from kube_rdma.model.attach.cni import Verb
from kube_rdma.model.ipam import AddressRequest, NicRequest
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.late_binding import PodName, PodSandbox
from kube_rdma.model.pools import Mode
from kube_rdma_testing.runtime.cri import FakeCriRuntime
from tests.kit.beside import beside
from tests.unit.agent.world import until
from tests.unit.attach.network_world import POD, UID, World, card, config, container, eth0, share

OWN_POD = PodSandbox("agent", replace(POD, name="agent"), "uid-agent", ready=True)
SHARE = share(card(0), Mode.SHARED_MULTI)


class Node:
    """The node of network_world with a runtime and a clock; `phase` is its pod's."""

    def __init__(self, world, runtime, socket):
        self.world, self.runtime, self.time, self.phase = world, runtime, 1000.0, "Running"
        self.told, self.wanted, self.failing, self.looks = [], {}, None, 0
        self._socket, self._numbers, self.owed = socket, {}, True
        runtime.run(OWN_POD)
        self.start()

    def start(self):
        to = repair.RepairDependencies(
            networks=self.world.networks,
            listed=self._listed,
            netns=partial(read_netns, self._socket),
            pods=self._pods,
            owed=self._owed,
            context=NodeContext(network="cluster"),
            restart=self._restart,
            tell=lambda pod, *what: self.told.append((pod.name, *what)),
            opened=self._opened,
        )
        self.sandboxes = repair.SandboxRepair(to, repair.RepairTiming(0.0, 60.0, lambda: self.time))

    def _owed(self, sandbox, pod):
        assert (sandbox.pod, sandbox.uid) == (PodName(pod.namespace, pod.name), pod.uid)
        if isinstance(self.owed, Exception):
            raise self.owed
        return self.owed

    def run(self):
        """The runtime makes the pod a sandbox without asking us; its number."""
        number = self.world.sandbox()
        path = self.world.call(Verb.ADD, number).netns_path
        self._numbers[path] = number
        self.runtime.run(PodSandbox(container(number), POD, UID, True, number), path)
        return number

    async def rounds(self, count=2, seconds=GRACE):
        """So many, with so much time before each but the first."""
        for number in range(count):
            self.time += seconds if number else 0.0
            await self.sandboxes.round()

    @property
    def events(self):
        return [reason for _, reason, _, _ in self.told]

    async def _listed(self):
        self.looks += 1
        return await read_sandboxes(self._socket)

    def _pods(self):
        annotations = tuple(sorted(self.world.node.annotations.items()))
        labels = ((RESTART, "true"),) if self.wanted else ()
        return (PodState(POD.namespace, POD.name, UID, annotations, labels, phase=self.phase),)

    async def _restart(self, pod, why):
        if self.failing:
            raise self.failing
        if why is None:
            del self.wanted[pod.name]
        else:
            self.wanted[pod.name] = why

    @contextmanager
    def _opened(self, path):
        yield self._numbers[path]


@pytest.fixture
async def node(tmp_path, tmp_path_factory):
    """A pod that asks for a network, its share, and no sandbox yet."""
    networks = {"default/rdma": config("macvlan")}
    world = World(tmp_path / "w", SHARE.cards, [SHARE], networks)
    world.ask("rdma")
    socket = tmp_path_factory.mktemp("r") / "s"
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as runtime:
        yield Node(world, runtime, socket)


async def test_a_sandbox_that_never_saw_our_add_gets_its_network_late(node):
    """After the grace, with address, binding and status; the pod is told, and DEL takes it back."""
    number = node.run()
    await node.rounds(1)
    assert "net1" not in node.world.inside(number)[0]
    await node.rounds()
    assert "net1" in node.world.inside(number)[0]
    assert set(node.world.bound) == set(node.world.held) == {container(number)}
    assert node.world.node.told
    assert node.events == ["NetworksAttachedLate"]
    await node.world.check(number)
    await node.rounds(3)
    assert node.events == ["NetworksAttachedLate"]
    await node.world.goes(number)


async def test_an_add_that_comes_all_the_same_finds_its_work_done(node):
    """And one that is under way is waited for: the sandbox gets one attachment."""
    number = node.run()
    await node.rounds(1)
    node.time += GRACE
    await asyncio.gather(node.sandboxes.round(), node.world.add(number))
    await node.world.holds_and_goes(number)


async def test_a_del_waits_for_a_late_attach(node):
    """Else it would find nothing, and the attachment would stay."""
    number = node.run()
    await node.rounds(1)
    node.time += GRACE
    late = asyncio.create_task(node.sandboxes.round())
    await until(lambda: node.world.held)
    await asyncio.gather(node.world.delete(number), late)
    node.world.nothing_left(number)


async def test_a_pod_that_is_healed_after_all_needs_no_restart(node):
    """The request is taken back, or the controller would end a pod that lacks nothing."""
    node.world.ask("rdm")
    node.run()
    await node.rounds(REFUSALS + 1, LONGEST)
    assert set(node.wanted) == {POD.name}
    node.world.ask("rdma")
    await node.rounds(2, LONGEST)
    assert node.events[-1] == "NetworksAttachedLate"
    assert not node.wanted


async def test_a_request_that_cannot_be_written_is_written_by_a_later_try(node, recording):
    """The API server is away; the pod is told why it lacks its networks all the same."""
    node.world.ask("rdm")
    node.failing = Unavailable("The API server does not answer.")
    node.run()
    await node.rounds(REFUSALS + 2, LONGEST)
    assert not node.wanted
    assert "restart request not written" in recording.events
    assert set(node.events) == {"NetworksMissing"}
    node.failing = None
    await node.rounds(2, LONGEST)
    assert set(node.wanted) == {POD.name}


async def test_a_fault_of_ours_holds_up_no_round(node, recording):
    """It is logged, and counts as a failure."""
    node.run()
    node.world.node.failing = ZeroDivisionError()
    await node.rounds()
    assert node.events == ["NetworksMissing"]
    assert "pod repair failed" in recording.events


async def test_an_attachment_without_a_sandbox_ends(node):
    """Its DEL was lost: at once where the namespace is gone, else when that is certain."""
    first, second = node.run(), node.run()
    await node.world.add(first)
    await node.world.add(second)
    node.runtime.remove(container(first))
    node.runtime.remove(container(second))
    node.world.end(first)
    await node.rounds(1)
    assert set(node.world.held) == {container(second)}
    await node.rounds(2, ABSENT)
    node.world.nothing_left(second)


async def test_an_orphan_that_cannot_be_ended_holds_up_no_other(node, recording):
    """It is tried again by the rounds that come."""
    first, second = node.run(), node.run()
    await node.world.add(first)
    node.runtime.remove(container(first))
    node.world.end(first)
    node.world.giver.failing = Unavailable("The disk is full.")
    await node.rounds()
    assert "attachment removal failed" in recording.events
    assert node.events == ["NetworksMissing"]  # of the second one
    node.world.giver.failing = None
    await node.rounds(2, LONGEST)
    assert set(node.world.held) == {container(second)}


async def test_addresses_that_no_sandbox_has_are_freed(node):
    """They are of an ADD whose journal was lost; those of living sandboxes stay."""
    living = node.run()
    await node.world.add(living)
    (pool,) = node.world.node.pools
    await node.world.giver.add(AddressRequest(container(77), "uid-77", (NicRequest(eth0, pool),)))
    node.world.held[container(77)] = {"lost"}
    await node.rounds(2, ABSENT - 1)
    assert set(node.world.held) == {container(living), container(77)}
    await node.rounds(2, ABSENT)
    assert set(node.world.held) == {container(living)}
    await node.world.check(living)


async def test_a_runtime_that_does_not_answer_is_asked_again(node, recording):
    """One line in the log, however long it takes."""
    number = node.run()
    node.runtime.failing = True
    async with beside(node.sandboxes.run()):
        await until(lambda: node.looks >= 2)
        node.runtime.failing = False
        looks = node.looks
        await until(lambda: node.looks > looks)
        node.time += GRACE
        node.sandboxes.wake()
        await until(lambda: node.told)
    assert "net1" in node.world.inside(number)[0]
    assert len(recording.of("sandbox reconciliation failed")) == 1


async def test_without_news_and_with_nothing_to_do_there_is_one_round(node):
    """No busy loop: the next round is a minute away, whatever was found."""
    number = node.run()
    await node.world.add(number)
    async with beside(node.sandboxes.run()):
        await until(lambda: node.looks)
        for _ in range(50):
            await asyncio.sleep(0)
        assert node.looks == 1
        node.sandboxes.wake()
        await until(lambda: node.looks == 2)


def test_a_namespace_that_cannot_be_opened_is_told_with_its_remedy(tmp_path):
    """Its folder is not mounted, or the sandbox has just ended."""
    with (
        pytest.raises(Unavailable, match="HostToContainer"),
        repair.open_netns(str(tmp_path / "gone")),
    ):
        pass


CARD, OTHER, FUNCTION = card(0), card(1), card(0, virtual=True)
KINDS = {
    "a macvlan on it": ("macvlan", Mode.SHARED, CARD),
    "the whole card": ("kube-rdma", Mode.EXCLUSIVE, CARD),
    "a virtual function": ("kube-rdma", Mode.SRIOV, FUNCTION),
}


class Returns:
    """The pods of a world, and what one of them was told after cards came back."""

    def __init__(self, world):
        self.world, self.told, self.looks, self.failing = world, [], 0, None
        self.cards = repair.ReturnedCards(
            lambda: world.attachments.by_key,
            self._lost,
            lambda *words: self.told.append(words),
            self._opened,
        )

    async def after(self, of):
        """The card comes back; all that stands on it is looked at."""
        async with beside(self.cards.run()):
            looks = self.looks
            self.cards.returned(of.id)
            await until(lambda: self.looks > looks)

    async def _lost(self, key, namespace):
        try:
            if self.failing:
                raise self.failing
            return await self.world.calls.pipeline.lost(key, namespace)
        finally:
            self.looks += 1

    @contextmanager
    def _opened(self, path):
        assert path == str(self.world.folder / "netns-1")
        yield 1


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
async def returns(request, tmp_path):
    kind, mode, of = request.param
    world = World(tmp_path, [of, OTHER], [share(of, mode)], {"default/net": config(kind)})
    world.ask("net")
    world.sandbox()
    await world.add(1)
    return Returns(world), of


def lose(world):
    """The interface goes, as the kernel has it go with what it stands on."""
    (link,) = (one for one in world.kernel.links if one.name == "net1")
    world.kernel.links.remove(link)


async def test_the_pod_is_told_what_went_and_what_to_do(returns):
    here, of = returns
    lose(here.world)
    await here.after(of)
    ((pod, reason, note),) = here.told
    assert (pod, reason) == (POD, "NetworksLost")
    assert note == (
        "net1 (default/net) went with the card, which came back without: delete the pod."
    )


async def test_a_pod_that_has_what_it_had_is_left_alone(returns):
    here, of = returns
    await here.after(of)
    assert not here.told


async def test_a_card_of_other_pods_is_nobody_s_news(returns):
    """The one that lost its interface hears of its own card only."""
    here, of = returns
    lose(here.world)
    here.cards.returned(OTHER.id)
    await here.after(of)
    assert here.looks == len(here.told) == 1


async def test_what_cannot_be_looked_at_ends_nothing(returns):
    """The pod may end meanwhile; the next return is looked at as the first."""
    here, of = returns
    lose(here.world)
    here.failing = Unavailable("The namespace is gone.")
    await here.after(of)
    assert not here.told
    here.failing = None
    await here.after(of)
    assert here.told
