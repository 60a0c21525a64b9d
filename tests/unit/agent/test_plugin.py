"""From cards and configuration to what the kubelet is offered, while both change."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from grpclib import GRPCError

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.agent import loop
from kube_rdma.model.device import PortState
from kube_rdma.model.survey import Fault
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from tests.unit.agent.conftest import Node, card, serving

HCA = "rdma/hca"


async def test_a_node_with_two_cards(settings, recording):
    """The whole of the SCC document: 1000 shares, and one of them opens both cards."""
    node = Node(card(0), card(1))
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serving(settings, node.kernel):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        response = await kubelet.allocate(HCA, 1)
        assert [d.host_path for d in response.devices] == [
            "/dev/infiniband/rdma_cm",
            "/dev/infiniband/uverbs0",
            "/dev/infiniband/uverbs1",
        ]
    events = ["started", "pool", "rails numbered", "registered", "allocated"]
    assert recording.events == events
    assert recording.lines[0]["config"] == str(settings.config)
    assert recording.lines[1]["cards"] == "rxe0,rxe1"
    assert recording.lines[4]["count"] == 1


async def test_cards_come_and_go(settings, recording):
    node = Node(card(0))
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serving(settings, node.kernel):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        node.change()
        await kubelet.until(lambda: kubelet.devices[HCA] == {})
        node.change(card(3))
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        response = await kubelet.allocate(HCA, 1)
        assert response.devices[1].host_path == "/dev/infiniband/uverbs3"
    assert recording.of("card vanished")[0]["card"] == "rxe0"
    assert recording.of("card appeared")[0]["card"] == "rxe3"


async def test_a_burst_is_one_look(settings, recording):
    """A card with its functions announces itself a hundred times."""
    node = Node()
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serving(settings, node.kernel):
        await kubelet.until(lambda: kubelet.states.get(HCA) == 1)
        assert node.looks == 1
        node.change(card(0), announcements=500)
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        assert node.looks == 2
        # A change without news reaches nobody; the next one with news does.
        node.change(card(0))
        node.change(card(0, PortState.DOWN))
        await kubelet.until(lambda: kubelet.healthy(HCA) == 0)
        assert node.looks == 3
        assert kubelet.states[HCA] == 3


@asynccontextmanager
async def refused():
    raise PermissionError(1, "Operation not permitted")
    yield


async def test_a_port_that_comes_up_unheard(settings, recording, monkeypatch):
    """Where the kernel lets us hear nothing, the node is looked at again by the clock."""
    monkeypatch.setattr(loop, "DEAF_SECONDS", 0.01)
    node = Node(card(0, PortState.DOWN), card(1, PortState.DOWN))
    kernel = replace(node.kernel, announcements=(("devices", refused),))
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serving(settings, kernel):
        await kubelet.until(lambda: kubelet.states.get(HCA) == 1)
        assert len(kubelet.devices[HCA]) == 1000
        assert kubelet.healthy(HCA) == 0
        with pytest.raises(GRPCError, match="ip link set eth0 up"):
            await kubelet.allocate(HCA, 1, ("1",))
        node.change(card(0, PortState.DOWN), card(1), announcements=0)
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
    told = [line["card"] for line in recording.of("card unhealthy")]
    assert told == ["rxe0", "rxe1"], "once each, not at every look"
    assert recording.of("card healthy again")[0]["card"] == "rxe1"
    assert "no port is ACTIVE" in recording.of("allocation refused")[0]["why"]


async def test_what_cannot_be_read_is_told_once(settings, recording):
    node = Node(card(0))
    node.survey = replace(node.survey, rdma_cm=None, faults=(Fault("RDMA netlink", "none"),))
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serving(settings, node.kernel):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        node.change()
        await kubelet.until(lambda: kubelet.devices[HCA] == {})
    assert recording.of("node state not readable") == [
        {
            "level": "warning",
            "event": "node state not readable",
            "what": "RDMA netlink",
            "why": "none",
        }
    ]
    assert len(recording.of("note")) == 1


async def test_a_kernel_that_announces_nothing(settings, recording):
    """We serve what is there and say what will not be noticed."""

    kernel = replace(Node(card(0)).kernel, announcements=(("devices", refused),))
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serving(settings, kernel):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
    assert recording.lines[1]["why"] == "Operation not permitted"


async def test_announcements_that_break_off_end_the_agent(settings, recording):
    class Broken:
        def __aiter__(self):
            return self

        async def __anext__(self):
            raise OSError(9, "Bad file descriptor")

    @asynccontextmanager
    async def broken():
        yield Broken()

    kernel = replace(Node().kernel, announcements=(("devices", broken),))
    with pytest.raises(Unavailable, match="broke off"):
        await loop.run_plugin(settings.dependencies(kernel))


@pytest.mark.parametrize("fault", ["no file", "no mode", "no folder of the kubelet"])
async def test_what_a_person_has_to_mend(settings, fault):
    """One error of ours, never a group, whatever was running by then."""
    if fault == "no file":
        settings.config.unlink()
    elif fault == "no mode":
        settings.config.write_text("{}")
    else:
        settings.kubelet_dir.rmdir()
    with pytest.raises(Refused) as caught:
        await loop.run_plugin(settings.dependencies(Node(card(0)).kernel))
    assert caught.value.where.startswith(
        str(settings.kubelet_dir if fault == "no folder of the kubelet" else settings.config)
    )


async def test_a_fault_of_ours_is_not_dressed_up_and_not_the_end(settings, recording):
    """A bug is logged as the bug it is, with its traceback; the next look is a new try."""
    node = Node(card(0))
    looks = iter([None, node.survey])
    kernel = replace(node.kernel, survey=lambda: next(looks, node.survey))
    async with FakeKubelet(settings.kubelet_dir) as kubelet, serving(settings, kernel):
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
    (line,) = recording.of("part of the program failed")
    assert line["part"] == "device plugin"
    assert isinstance(line["exc_info"], AttributeError)


class Failing:
    """What runs beside the loop, fails whenever it is started, and notes what it is told."""

    def __init__(self, error):
        self.error, self.starts, self.again = error, 0, asyncio.Event()

    async def run(self, *_):
        self.starts += 1
        if self.starts == 2:
            self.again.set()
        raise self.error

    follow = sweep = run
    part = "a keeper"

    @property
    def parts(self):
        return {self.part: self.run}

    def __getattr__(self, name):
        return lambda *_args, **_further: None


@pytest.mark.parametrize("error", [RuntimeError("x"), Refused("x", remedy="y")])
@pytest.mark.parametrize("part", ["keepers", "metrics", "policies", "networks"])
async def test_what_fails_beside_the_loop_harms_nobody_else(settings, recording, part, error):
    """It is begun anew, and pods get their cards all the while."""
    node, failing = Node(card(0)), Failing(error)
    further = {part: (failing,) if part == "keepers" else failing}
    agent = serving(settings, node.kernel, **further)
    async with FakeKubelet(settings.kubelet_dir) as kubelet, agent:
        await failing.again.wait()
        await kubelet.until(lambda: kubelet.healthy(HCA) == 1000)
        assert len((await kubelet.allocate(HCA, 1)).devices) == 2
    assert {line["part"] for line in recording.of("part of the program failed")} != set()
