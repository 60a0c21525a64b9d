"""Offers to tell, answers to give, a plugin that runs for the length of a test, and its log."""

from contextlib import asynccontextmanager

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.adapters.kubelet.device_plugin import DevicePlugin, PluginHandlers
from kube_rdma.model.pools import Grant, Offer, Share
from kube_rdma_testing.recording import recorded
from tests.kit.beside import beside

PATHS = ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")


def make_offer(count=1000, healthy=True, resource="rdma/hca", **changes):
    shares = tuple(Share(f"hca-{n}", healthy) for n in range(count))
    return replace(Offer(resource, shares), **changes)


class Desk:
    """Who answers: grants `paths` for shares that are called hca-N, keeps what it was asked."""

    def __init__(self, paths=PATHS, cdi=()):
        self.paths = paths
        self.cdi = cdi
        self.choices = []
        self.starts = []
        self.chosen = ()  # what it prefers
        self.refusal = None  # raised by a start

    async def allocate(self, wanted):
        if not all(share.startswith("hca-") for share in wanted):
            raise Refused(
                f"no share is named {wanted[0]}", remedy="Create the pod again", where="rdma/hca"
            )
        return Grant("rdma/hca", tuple(wanted), self.paths, cdi=self.cdi)

    async def prefer(self, choice):
        self.choices.append(choice)
        return self.chosen

    async def start(self, shares):
        self.starts.append(shares)
        if self.refusal:
            raise self.refusal

    def answers(self):
        return PluginHandlers(self.allocate, self.prefer, self.start)


@asynccontextmanager
async def run(plugin):
    async with beside(plugin.run()):
        yield plugin


def running(directory, offer, answers=None, kind=DevicePlugin):
    return run(kind(directory, offer, answers or PluginHandlers(Desk().allocate)))


@pytest.fixture
def directory(tmp_path_factory):
    """Not tmp_path: with the name of the test in it no socket would fit (107 characters)."""
    return tmp_path_factory.mktemp("k")


@pytest.fixture
def recording():
    with recorded() as found:
        yield found
