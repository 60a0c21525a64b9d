"""An agent that is killed after any message to the fake kernel leaves nothing."""

from __future__ import annotations

from contextlib import contextmanager
from ipaddress import ip_address, ip_network

import pytest

from kube_rdma.adapters.kernel.sriov.functions import SriovCards
from kube_rdma.model.attach.steps import AddRoute, AddRule
from kube_rdma.model.ipam import InterfaceName
from kube_rdma_testing.kernel.network import KilledError
from tests.kit.pod_networks import card
from tests.kit.selftest_world import World
from tests.vm.guest.sriov_contract import KilledMaking
from tests.vm.guest.steps_contract_killed import Killed

from . import test_sriov


class FakeWorld(World):
    """The node of the hardware self-test: a card with rxe, and a virtual function."""

    def __init__(self):
        super().__init__(card(0, soft=True), card(1, virtual=True, rdma=False))
        self.card, self.function = (each.function.netdevs[0].name for each in self.cards)
        link = self.kernel.named(self.kernel.node, self.card)
        link.addresses = [(ip_address("192.0.2.1"), 24), (ip_address("2001:db8::1"), 64)]
        name, hop = InterfaceName(self.card), ip_address("192.0.2.254")
        self.kernel.node.routes = [
            AddRoute(name, ip_network("198.51.100.0/24"), hop),
            AddRoute(name, ip_network("0.0.0.0/0"), hop, None, 101),
        ]
        self.kernel.node.rules = [AddRule(ip_address("192.0.2.1"), 101, 20000)]
        self.scene, self.on_node, self.pod = self.look, self.state, self.namespace
        self.open = self.kernel.open_pod

    def view(self, namespace, sysctls=(), functions=()):
        with self.open(namespace) as pod:
            return pod.look(sysctls, functions)

    def dies(self, after, work):
        self.kernel.die_after(after)
        try:
            work()
        except KilledError:
            return True
        self.kernel.die_after(0)  # nobody
        return False

    def until(self, condition):
        return condition()

    @contextmanager
    def net1_is_taken(self):
        self.kernel.old = True
        self.kernel.add_link("net1", mac="02:00:00:00:00:99", kind="dummy")
        yield


@pytest.fixture
def world():
    return FakeWorld()


class TestKilled(Killed):
    pass


class Card(test_sriov.FakeWorld):
    """One that can have virtual functions."""

    def write(self, path, text):
        self.kernel.write(path, text)

    def sriov(self, write=None, give=None):
        return SriovCards(self.root, write or self.write, give)


class TestKilledMaking(KilledMaking):
    @pytest.fixture
    def world(self, tmp_path):
        return Card(tmp_path)
