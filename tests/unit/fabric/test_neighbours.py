"""The neighbours of a node's ports, on fake interfaces and a clock that the test moves."""

import asyncio

from kube_base.frozen import replace
from kube_rdma.fabric.neighbours import Neighbours
from kube_rdma.fabric.rules.lldp import TTL_SECONDS
from kube_rdma.model.card import Function, Netdev
from kube_rdma.model.device import LinkLayer, PciAddress
from kube_rdma.model.pools import Mode, Pool, PoolSpec
from kube_rdma.model.reports import ReportedNeighbour
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma.pools.rules.node_health import node_cards
from kube_rdma_testing.kernel.lldp import FakeLldp
from tests.kit.beside import beside
from tests.kit.lldp import SWITCH, frame
from tests.unit.agent.conftest import RDMA_CM
from tests.unit.agent.world import hard_card, position, until

LEAF = ReportedNeighbour("leaf-1", "Ethernet1/1", SWITCH.hex(":"))
HCA = PoolSpec("rdma/hca", Mode.HCA, "config.json")


class Loop(asyncio.SelectorEventLoop):
    """Its clock is `ahead` by so many seconds; it counts what wakes it."""

    ahead = 0.0

    def time(self):
        return super().time() + self.ahead

    def pass_by(self, seconds):
        """Let time pass for whoever waits."""
        self.ahead += seconds
        self.call_soon(lambda: None)


class World:
    """Two cards in a pool, their interfaces, and how often the agent was woken to look again."""

    def __init__(self, loop, **kernel):
        self.loop = loop
        self.kernel = FakeLldp(("eth0", "eth1"), **kernel)
        self.cards = [hard_card(0), hard_card(1)]
        self.up = [(Netdev(f"eth{n}", "ether", up=True, carrier=True),) for n in range(2)]
        self.flags = {}
        self.looks, self.full = 0, False
        self.kept = []
        self.neighbours = Neighbours(self.kernel.opened, lambda name: self.flags, self.keep)
        self.neighbours.changed = self.changed

    def keep(self, neighbours):
        self.kept.append(dict(neighbours))
        if self.full:
            raise OSError("No space left on device")

    def changed(self):
        self.looks += 1
        self.look()

    def look(self, pooled=None):
        """A look of the agent; what it is told of the first ports of cards, by card."""
        functions = [
            Function(position(n), 0x15B3, 0x1017, "mlx5_core", up) for n, up in enumerate(self.up)
        ]
        survey = Survey(tuple(self.cards), RDMA_CM, NamespaceMode.EXCLUSIVE)
        survey = replace(survey, functions=tuple(functions))
        cards = tuple(node_cards(survey)[:pooled])
        known = self.neighbours.look((Pool(HCA, (), cards),), survey)
        return {key[0]: one for key, one in known.items()}

    def of(self, number):
        return self.look().get(position(number).pci)

    async def opened(self, *names):
        """Wait until the agent listens on these interfaces and no other."""
        await until(lambda: sorted(self.neighbours._sockets) == sorted(names))
        await until(lambda: sorted(one.interface for one in self.kernel.sockets) == sorted(names))

    async def send(self, interface, sent):
        """Send a frame, and wait until the agent has read it."""
        here = self.neighbours
        before = here._ports[interface]
        self.kernel.send(interface, sent)
        await until(lambda: here._ports[interface] is not before or interface not in here._sockets)


def lldp(**kernel):
    """Run a test in a world whose sockets are open."""

    def run(test):
        def whole():
            async def inside(loop):
                world = World(loop, **kernel)
                world.look()
                async with beside(world.neighbours.run()):
                    if not kernel:
                        await world.opened("eth0", "eth1")
                    await test(world)
                assert world.kernel.sockets == []
                assert world.kept[-1] == {}

            with asyncio.Runner(loop_factory=Loop) as runner:
                runner.run(inside(runner.get_loop()))

        whole.__name__ = test.__name__
        return whole

    return run


@lldp()
async def test_a_neighbour_is_told_once_and_again_when_it_changes(world):
    assert world.of(0).neighbour is None
    assert world.of(0).unheard == ""
    await world.send("eth0", frame())
    await until(lambda: world.looks == 1)
    assert world.of(0).neighbour == LEAF
    assert world.of(1).neighbour is None
    for _ in range(5):
        await world.send("eth0", frame())
    assert world.looks == 1
    for _ in range(2):
        await world.send("eth0", frame(port="Ethernet1/2"))
    await until(lambda: world.looks == 2)
    assert world.of(0).neighbour.port == "Ethernet1/2"


@lldp()
async def test_who_falls_silent_is_unheard_with_what_helps(world):
    await world.send("eth0", frame(ttl=120))
    await until(lambda: world.looks == 1)
    world.flags = {"fw-lldp-agent": True}
    world.loop.pass_by(122)
    await until(lambda: world.looks >= 2)
    assert world.of(0).neighbour is None
    assert world.of(0).unheard == (
        "no LLDP frame came to eth0 for 120 s: the card's firmware takes them, ethtool "
        "--set-priv-flags eth0 fw-lldp-agent off gives them to the node"
    )
    await world.send("eth0", frame())
    assert world.of(0).neighbour == LEAF


@lldp()
async def test_frames_keep_a_neighbour_for_as_long_as_they_come(world):
    await world.send("eth0", frame(ttl=600))
    await until(lambda: world.looks == 1)
    await world.send("eth1", frame("leaf-2", ttl=600))
    await until(lambda: world.looks == 2)
    for _ in range(10):
        world.loop.pass_by(400)
        await world.send("eth0", frame(ttl=600))
        await world.send("eth1", frame("leaf-2", ttl=600))
    assert world.of(0).neighbour == LEAF
    assert world.looks == 2


@lldp()
async def test_a_flood_of_forged_switches_is_told_three_times_at_most_and_closes_the_socket(world):
    for number in range(10):
        await world.send("eth0", frame(f"leaf-{number}"))
    await world.opened("eth1")
    assert "tcpdump -eni eth0" in world.of(0).unheard
    for number in range(4096):
        world.kernel.send("eth0", frame(f"leaf-{number}"))
    await world.send("eth1", frame("leaf-2"))
    await until(lambda: world.of(1).neighbour)
    assert world.looks <= 3
    world.loop.pass_by(TTL_SECONDS + 1)
    await world.opened("eth0", "eth1")
    await world.send("eth0", frame())
    assert world.of(0).neighbour == LEAF


@lldp()
async def test_garbled_frames_are_passed_over_and_too_many_end_the_hearing(world):
    await world.send("eth0", frame()[:20])
    assert world.of(0).unheard == ""
    for _ in range(1000):
        world.kernel.send("eth0", frame()[:20])
        await asyncio.sleep(0)
    await world.opened("eth1")


@lldp()
async def test_a_card_that_a_pod_has_keeps_its_neighbour(world):
    await world.send("eth0", frame())
    await until(lambda: world.looks == 1)
    world.kernel.leave("eth0")
    card, world.cards[0:1] = world.cards[0], []
    world.up[0] = ()
    world.look()
    await world.opened("eth1")
    world.loop.pass_by(10_000)
    assert world.of(0).neighbour == LEAF
    world.kernel.interfaces.add("eth0")
    world.cards.insert(0, card)
    world.up[0] = (Netdev("eth0", "ether", up=True, carrier=True),)
    world.look()
    await world.opened("eth0", "eth1")
    assert world.of(0).neighbour == LEAF
    world.loop.pass_by(TTL_SECONDS + 1)
    await until(lambda: world.of(0).neighbour is None)
    assert world.of(0).unheard.startswith("no LLDP frame came to eth0")


@lldp()
async def test_a_card_that_leaves_its_pool_is_no_longer_listened_to(world):
    world.look(pooled=1)
    await world.opened("eth0")
    world.look()
    await world.opened("eth0", "eth1")


@lldp()
async def test_an_interface_that_was_made_anew_gets_a_new_socket(world):
    (old,) = (one for one in world.kernel.sockets if one.interface == "eth0")
    world.kernel.leave("eth0")
    world.kernel.interfaces.add("eth0")
    world.look()
    await until(lambda: old not in world.kernel.sockets)
    await world.opened("eth0", "eth1")
    await world.send("eth0", frame())
    assert world.of(0).neighbour == LEAF


@lldp()
async def test_the_frames_of_a_virtual_function_come_to_its_physical_one(world):
    """Also while the function is in a pod."""
    pci = PciAddress("0000:81:00.1")
    place = replace(position(0), pci=pci, physical_function=position(0).pci)
    function = replace(hard_card(0), name="mlx5_9", identity=pci, pci=pci, position=place)
    world.cards[0] = replace(function, ports=(replace(function.ports[0], netdev="vf0"),))
    await world.send("eth0", frame())
    known = world.neighbours.look
    survey = Survey(
        tuple(world.cards),
        RDMA_CM,
        NamespaceMode.EXCLUSIVE,
        functions=(
            Function(position(0), 0x15B3, 0x1017, "mlx5_core", world.up[0]),
            Function(place, 0x15B3, 0x1018, "mlx5_core", (Netdev("vf0", "ether", True, True),)),
        ),
    )
    cards = tuple(card for card in node_cards(survey) if card.id == pci)
    told = known((Pool(HCA, (), cards),), survey)
    assert told[(pci, "mlx5_9", 1)].neighbour == LEAF
    away = (replace(cards[0], devices=()),)
    gone = replace(survey, devices=(), functions=survey.functions[:1])
    assert known((Pool(HCA, (), away),), gone)[(pci, "mlx5_9", 1)].neighbour == LEAF
    await world.opened("eth0")
    await world.send("eth0", frame())


@lldp()
async def test_infiniband_is_not_listened_to_and_says_why(world):
    port = replace(world.cards[0].ports[0], link_layer=LinkLayer.INFINIBAND, netdev="ib0")
    world.cards[0] = replace(world.cards[0], ports=(port,))
    assert "subnet manager" in world.of(0).unheard
    await world.opened("eth1")


@lldp(permitted=False)
async def test_an_agent_that_may_not_listen_says_so_and_tries_with_each_look(world):
    await until(lambda: world.looks)
    assert world.of(0).unheard == (
        "no LLDP frame of eth0 can be received (Operation not permitted): agents that attach "
        "networks have the right, CAP_NET_RAW"
    )
    assert world.looks == 1
    world.kernel.permitted = True
    world.look()
    await world.opened("eth0", "eth1")


@lldp()
async def test_at_rest_there_is_one_timer_for_all_ports(world):
    """The first port that is due; frames move it and wake nothing."""
    for name in ("eth0", "eth1"):
        await world.send(name, frame(ttl=120))
    await until(lambda: world.looks >= 1)
    ports = world.neighbours._ports
    timer = world.neighbours._timer
    assert timer.when() == min(one.until for one in ports.values()) > world.loop.time() + 60
    world.loop.pass_by(50)
    await world.send("eth0", frame(ttl=120))
    assert timer.cancelled()
    assert world.neighbours._timer.when() == ports["eth1"].until


@lldp()
async def test_neighbours_are_kept_for_others_when_they_change(world):
    await world.send("eth0", frame())
    await until(lambda: world.kept == [{}, {"mlx5_0/1": "leaf-1 Ethernet1/1"}])
    await world.send("eth0", frame())
    world.full = True
    await world.send("eth1", frame("leaf-2", ttl=600))
    await until(lambda: len(world.kept) == 3)
    world.full = False
    world.loop.pass_by(TTL_SECONDS + 1)
    await until(lambda: world.kept[3:] == [{"mlx5_1/1": "leaf-2 Ethernet1/1"}])
