"""Requests from end to end on an API server that works: its load, and what people read."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from random import Random

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.ipam.rules import agent as operations
from kube_rdma.ipam.rules import effects
from kube_rdma.ipam.rules.node_state import load
from kube_rdma.ipam.rules.subpools import subpools
from kube_rdma.model.ipam import AddressRequest, IPPool, IPRange, NicRequest, NodeLease, Timing

from .store import Store, is_shown


class Node:
    """An agent whose every effect succeeds; it sees the API server's objects as they are."""

    clock = 0.0

    def __init__(self, name: str, store: Store, *pools: IPPool) -> None:
        self.store, self.effects = store, []
        self.agent = effects.IpamAgentState(
            NodeLease(name, f"journal-{name}", f"boot-{name}"),
            load(name, (), 0.0),
            Timing(),
            {pool.name: subpools(pool) for pool in pools},
        )
        self.run(operations.acquire_lease(self.agent))

    def run(self, task: effects.Effects, others: Iterable[Node] = ()):
        """Carry out all effects of an operation; while it waits, the other nodes tick."""
        answer = None
        while True:
            try:
                effect = task.send(answer)
            except StopIteration as stop:
                return stop.value
            self.effects.append(effect)
            answer = self._do(effect, others)

    def _do(self, effect: effects.Effect, others: Iterable[Node]):
        match effect:
            case effects.Clock():
                return Node.clock
            case effects.Put() | effects.Remove():
                return None
            case effects.Pause(seconds):
                Node.clock += seconds
                for other in others:
                    other.tick()
                self.look()
                return None
        return self.store.request(effect, False, 0.0)

    def look(self) -> None:
        """The watches are up to date."""
        agent, node = self.agent, self.agent.state.node
        agent.queues = dict(self.store.queues)
        shown = {k: b for k, b in self.store.blocks.items() if agent.sees_all or is_shown(b, node)}
        for key in set(agent.blocks) - set(shown):
            agent.lose_sight(key)
        for key, block in shown.items():
            agent.observe(key, block)

    def tick(self) -> None:
        """What an agent does every second."""
        self.look()
        self.run(operations.renew_lease(self.agent))
        self.run(operations.tick(self.agent))

    def add(self, container: str, *nics: NicRequest, others: Iterable[Node] = ()) -> list[str]:
        """The addresses of a request."""
        self.look()
        request = AddressRequest(container, f"pod-{container}", nics or (NicRequest("net1", "p"),))
        granted = self.run(operations.add(self.agent, request), others)
        return [str(allocation.address) for allocation in granted.allocations]


@pytest.fixture
def store() -> Store:
    Node.clock = 0.0
    return Store(Random(0))  # noqa: S311 - it draws nothing: no request is lost


def pool(subnet: str = "10.0.0.0/24", **more) -> IPPool:
    return IPPool("p", (IPRange(ip_network(subnet)),), **more)


def test_common_requests_ask_the_api_server_for_nothing(store: Store) -> None:
    """Eight NICs are one record of the journal; the stock is filled between requests."""
    node = Node("n1", store, pool("10.0.0.0/16"))
    nics = [NicRequest(f"net{n}", "p") for n in range(8)]
    node.add("c0", *nics)
    node.tick()
    before = store.writes
    node.effects.clear()
    for number in range(1, 4):
        assert len(set(node.add(f"c{number}", *nics))) == 8
    assert store.writes == before
    asked = [effect for effect in node.effects if not isinstance(effect, effects.Clock)]
    assert [type(effect) for effect in asked] == [effects.Put] * 3


@pytest.mark.parametrize("subnet", ["10.0.0.0/20", "10.64.0.0/10", "fd00::/64"])
def test_writes_per_address(store: Store, subnet: str) -> None:
    """At most one write for four addresses, whatever the size of the pool."""
    node = Node("n1", store, pool(subnet))
    before = store.writes
    for number in range(400):
        node.add(f"c{number}")
        if number % 10 == 0:
            node.tick()
    assert (store.writes - before) / 400 <= 0.25


def test_a_pool_is_filled_to_the_last_address(store: Store) -> None:
    """One node holds all addresses; another gets what is spare, then is refused with the count."""
    one, two = Node("n1", store, pool("10.0.0.0/28")), Node("n2", store, pool("10.0.0.0/28"))
    given = one.add("a")
    assert len(store.blocks) == 1
    for number in range(13):
        given += two.add(f"b{number}", others=[one])
    assert len(set(given)) == 14
    with pytest.raises(Refused) as caught:
        two.add("c", others=[one])
    assert str(caught.value) == (
        "IPPool p: the pool is full: 14 of 14 addresses are held, and no node gave back the 1 that "
        "node n2 lacks. Add a range, delete pods, or taint nodes that are down as out-of-service."
    )
    assert store.queues["p"].requests == ()


def test_a_static_address_is_borrowed_or_refused(store: Store) -> None:
    """From another node's stock it comes; from another node's pod it does not."""
    one, two = Node("n1", store, pool("10.0.0.0/28")), Node("n2", store, pool("10.0.0.0/28"))
    used = one.add("a")[0]
    nic = NicRequest("net1", "p", addresses=(ip_address("10.0.0.9"),))
    assert two.add("b", nic, others=[one]) == ["10.0.0.9"]
    with pytest.raises(Refused, match=f"{used} is in use on node n1"):
        two.add("c", NicRequest("net1", "p", addresses=(ip_address(used),)), others=[one])


def test_a_sticky_address_follows_its_owner(store: Store) -> None:
    """It cools down on its old node; the pod waits on the other node, and gets the same one."""
    wish = pool("10.0.0.0/28", cooldown=30.0)
    one, two = Node("n1", store, wish), Node("n2", store, wish)
    nic = NicRequest("net1", "p", owner="ns/db-0/net1")
    first = one.add("a", nic)
    one.tick()
    one.run(operations.delete(one.agent, "a"))
    with pytest.raises(Unavailable, match="was the last address of ns/db-0/net1"):
        two.add("b", nic, others=[one])
    Node.clock += 30
    assert two.add("b", nic, others=[one]) == first
    for old, before, new, after in ((two, "b", one, "c"), (one, "c", two, "d")):
        old.tick()
        old.run(operations.delete(old.agent, before))
        with pytest.raises(Unavailable, match="was the last address of ns/db-0/net1"):
            new.add(after, nic, others=[old])
        Node.clock += 30
        assert new.add(after, nic, others=[old]) == first


def test_a_sticky_pod_starts_without_its_address_if_it_must(store: Store) -> None:
    """Another pod has it by now, and the owner gets one that is free."""
    wish = pool("10.0.0.0/29", cooldown=1.0)
    one, two = Node("n1", store, wish), Node("n2", store, wish)
    nic = NicRequest("net1", "p", owner="ns/db-0/net1")
    (first,) = one.add("a", nic)
    one.tick()
    one.run(operations.delete(one.agent, "a"))
    Node.clock += 2
    one.tick()
    assert one.add("x", NicRequest("net1", "p", addresses=(ip_address(first),))) == [first]
    one.tick()
    (other,) = two.add("b", nic, others=[one])
    assert other != first


def test_waiting_for_a_node_that_does_not_answer_ends(store: Store) -> None:
    """The old node is silent: after cool-down and patience the pod gets another address."""
    wish = pool("10.0.0.0/24", cooldown=10.0)
    one, two = Node("n1", store, wish), Node("n2", store, wish)
    nic = NicRequest("net1", "p", owner="ns/db-0/net1")
    first = one.add("a", nic)
    one.tick()
    with pytest.raises(Unavailable):
        two.add("b", nic)
    Node.clock += 15
    assert two.add("b", nic) != first
