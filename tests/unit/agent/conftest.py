"""A node of our own: cards that come and go, uevents pushed by hand, a kubelet."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.netlink.events import Uevent
from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin
from kube_rdma.agent.loop import AgentDependencies, run_plugin
from kube_rdma.hardware.kernel_events import KernelSources
from kube_rdma.model.device import (
    CharDevice,
    CharKind,
    Device,
    Gid,
    GidType,
    LinkLayer,
    PhysicalState,
    Port,
    PortState,
)
from kube_rdma.model.survey import NamespaceMode, Survey
from kube_rdma_testing.kernel.listeners import FakeUevents
from tests.kit.beside import beside

RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)


def card(number, state=PortState.ACTIVE):
    physical = PhysicalState.LINK_UP if state is PortState.ACTIVE else PhysicalState.DISABLED
    netdev = f"eth{number}"
    gid = Gid(0, "fe80:0000:0000:0000:5054:00ff:fe00:0001", GidType.ROCE_V2, netdev)
    port = Port(1, state, physical, LinkLayer.ETHERNET, 100.0, netdev, (gid,))
    uverbs = CharDevice(CharKind.UVERBS, f"/dev/infiniband/uverbs{number}", 231, 192 + number)
    name = f"rxe{number}"
    return Device(name, f"{name}@{netdev}", None, "CA", None, None, None, None, (port,), (uverbs,))


class Node:
    """What the kernel shows: `cards` now, and how often somebody looked."""

    def __init__(self, *cards):
        self.survey = Survey(cards, RDMA_CM, NamespaceMode.SHARED)
        self.looks = 0
        self.events = FakeUevents()

    @property
    def kernel(self):
        return KernelSources(self.look, (("devices", lambda: self.events),))

    def look(self):
        self.looks += 1
        return self.survey

    def change(self, *cards, announcements=1):
        """Other cards from now on, announced so many times; 0 is a change without a uevent."""
        self.survey = replace(self.survey, devices=cards)
        for _ in range(announcements):
            self.events.push(Uevent("change", "infiniband"))


@dataclass(frozen=True)
class Settings:
    config: Path
    kubelet_dir: Path

    def dependencies(self, kernel, **further):
        serve = partial(DevicePlugin, self.kubelet_dir)
        return AgentDependencies(self.config, kernel, serve, **further)


@pytest.fixture
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("n")
    (folder / "config").mkdir()
    (folder / "config" / "config.json").write_text('{"mode": "hca"}')
    plugins = folder / "kubelet" / "device-plugins"
    plugins.mkdir(parents=True)
    return Settings(folder / "config" / "config.json", plugins)


def serving(settings, kernel, **further):
    """The role in the background; an error of it comes out at the end."""
    return beside(run_plugin(settings.dependencies(kernel, **further)))
