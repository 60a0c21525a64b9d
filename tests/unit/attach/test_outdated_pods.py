"""A pod that holds another device's nodes is marked for its end, and told what comes next."""

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.attach.attach import ALONE, EVICTED, OutdatedPods
from kube_rdma.attach.rules.repair import AGAIN
from kube_rdma.model.attach.attachment import RESTART
from kube_rdma.model.errors import Outdated
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import Mode
from tests.unit.attach.network_world import World, card, config, share

VIRTUAL = card(0, virtual=True)
WHY = (
    "mlx5_0 is /dev/infiniband/mlx5_0 since it moved into the pod, and the container was given "
    "/dev/infiniband/uverbs7, so only a new pod can use it."
)


class OutdatedWorld(World):
    """A node whose devices move; `given` is what Allocate gave, `time` the clock."""

    def __init__(self, folder, given="uverbs7"):
        self.wanted, self.told, self.time, self.failing = [], [], 100.0, None
        held = replace(share(VIRTUAL, Mode.SRIOV, early=True), char_paths=())
        networks = {"default/net": config("sriov")}
        super().__init__(folder, [VIRTUAL], [held], networks, exclusive_rdma=True)
        self.give(given)
        self.outdated = OutdatedPods(self._restart, self._tell, lambda: self.time)
        self.node.controlled = True
        self.ask("net")
        self.start()

    def give(self, name):
        paths = (f"/dev/infiniband/{name}",)
        self.node.shares = (replace(self.node.shares[0], char_paths=paths),)

    async def _restart(self, pod, why):
        if self.failing:
            raise self.failing
        self.wanted.append(why)
        self.node.labels = {RESTART: "true"} if why else {}

    def _tell(self, pod, *what):
        self.told.append(what)

    async def refuse(self):
        """One try of the kubelet, each with a sandbox of its own."""
        number = self.sandbox()
        with pytest.raises(Outdated):
            await self.add(number)
        self.nothing_left(number)
        self.end(number)


async def test_a_pod_whose_refusal_lasts_is_marked_and_told_what_comes_next(tmp_path):
    """Once a minute: the kubelet tries more often."""
    world = OutdatedWorld(tmp_path)
    await world.refuse()
    assert (world.wanted, world.told) == ([], []), "another device may hold the number for a moment"
    await world.refuse()
    assert world.wanted == [WHY]
    assert world.told == [("DeviceNodesOutdated", f"{WHY} {EVICTED}", True)]
    await world.refuse()
    assert len(world.wanted) == len(world.told) == 1
    world.time += AGAIN
    await world.refuse()
    assert len(world.wanted) == len(world.told) == 2


async def test_a_bare_pod_is_told_and_not_marked(tmp_path):
    """Its end would be the end of its work."""
    world = OutdatedWorld(tmp_path)
    world.node.controlled = False
    for _ in range(2):
        await world.refuse()
    assert world.wanted == []
    assert world.told == [("DeviceNodesOutdated", f"{WHY} {ALONE}", True)]


async def test_a_mark_is_taken_back_when_the_pod_could_be_attached_after_all(tmp_path):
    world = OutdatedWorld(tmp_path)
    for _ in range(2):
        await world.refuse()
    world.give("mlx5_0")
    await world.add(world.sandbox())
    assert world.wanted == [WHY, None]


async def test_a_request_that_cannot_be_written_is_tried_again(tmp_path, recording):
    world = OutdatedWorld(tmp_path)
    world.failing = Unavailable("The API server is away.")
    for _ in range(2):
        await world.refuse()
    assert recording.of("restart request not written")
    world.failing = None
    world.time += AGAIN
    await world.refuse()
    assert world.wanted == [WHY]


async def test_interfaces_that_are_attached_one_by_one_count_one_by_one():
    """The first is attached at every try, the second refused: behind a meta-plugin."""
    wanted = []

    async def restart(pod, why):
        wanted.append(why)

    pods = OutdatedPods(restart, lambda *_: None, lambda: 1.0)
    pod = PodState("default", "a", "u", labels=((RESTART, "true"),), owner="Job/j")
    first, second = InterfaceName("net1"), InterfaceName("net2")
    await pods.refused(pod, second, Outdated("x"))
    await pods.attached(pod, first)
    await pods.refused(pod, second, Outdated("x"))
    assert wanted == ["x."]
    await pods.attached(pod, second)
    assert wanted == ["x.", None]


async def test_a_pod_that_ends_already_is_left_alone():
    told = []
    pods = OutdatedPods(None, lambda *what: told.append(what), lambda: 1.0)
    for _ in range(3):
        await pods.refused(PodState("default", "a", "u", deleting=True), None, Outdated("x"))
    assert told == []
