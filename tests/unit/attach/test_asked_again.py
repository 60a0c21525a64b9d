"""A runtime that was silent at the agent's start gets late binding later, but below no pod."""

from __future__ import annotations

import pytest

from kube_base.frozen import replace
from kube_rdma.agent import loop
from kube_rdma.attach.late_binding import NoLateBinding, PendingLateBinding
from kube_rdma_testing.kubelet.devices import ContainerPlace
from tests.unit.agent.world import VKE, World, hard_card, until


@pytest.fixture
def world(tmp_path_factory, recording, monkeypatch):
    monkeypatch.setattr(loop, "PENDING_SECONDS", 0.02)
    found = World(tmp_path_factory.mktemp("w"), hard_card(0), hard_card(1))
    found.label("shared")
    return found


class Runtime:
    """What the container runtime answers, and how often it was asked."""

    def __init__(self, world):
        self.works, self.asked = False, 0
        binding = world.doors(late=True).late
        self.late = PendingLateBinding(
            NoLateBinding("it is not known"), self.ask, lambda: binding, seconds=0.01
        )

    async def ask(self):
        self.asked += 1
        return self.works, "containerd is 2.1 and CDI is on."


async def test_late_binding_comes_when_the_runtime_answers_and_no_pod_holds_a_share(
    world, recording
):
    runtime = Runtime(world)
    async with world.serving(replace(world.doors(), late=runtime.late)):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)
        early = await world.kubelet.allocate(VKE, 1, place=ContainerPlace("early"))
        assert early.devices, "given at Allocate"
        await until(lambda: runtime.asked > 2)
        assert not recording.of("mode change pending")
        runtime.works = True
        await recording.wait_for("mode change pending")
        assert "default/early" in recording.of("mode change pending")[0]["what"]
        world.kubelet.remove_pod("early")
        await recording.wait_for("mode change applied")
        await until(lambda: len(recording.of("registered")) == 2)
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) == 2)
        late = await world.kubelet.allocate(VKE, 1, place=ContainerPlace("late"))
        assert not late.devices
        assert [device.name for device in late.cdi_devices], "a name for what is bound later"
        asked = runtime.asked
    assert runtime.asked == asked, "it is asked no more"
    assert len(recording.of("late binding available")) == 1
