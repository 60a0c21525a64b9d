"""A made-up kernel for Steps, as tests make it:

    kernel = FakeKernel()
    card = kernel.add_link("eth1", mac="02:00:00:00:01:01", pci="0000:81:00.0")
    kernel.add_pod(Path("/run/netns/pod"))
    with kernel.open_pod(Path("/run/netns/pod")) as pod:
        pod.run(...)

On top of network.py, network_rdma.py and network_pod.py: it ends namespaces, opens pods and kills
its caller in the middle of a Step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel.pod.gids import DEVICES, PATIENCE
from kube_rdma.adapters.kernel.pod.namespaces import Namespace
from kube_rdma.adapters.kernel.pod.steps import PodNetwork
from kube_rdma_testing.kernel.network import VIRTUAL, FakeNetwork
from kube_rdma_testing.kernel.network_pod import FakePod
from kube_rdma_testing.kernel.network_rdma import return_home


class FakeKernel(FakeNetwork):
    """A fake kernel of a node, as Steps and their tests use it."""

    def end(self, path: Path) -> None:
        """End a network namespace: VIRTUAL links vanish, the others return to the node.

        The latter are down and without addresses then. A name that the node has is replaced
        (default_device_exit_net, net/core/dev.c).
        """
        space = self._spaces.pop(path)
        for link in [link for link in self.links if link.space is space]:
            if link.kind in VIRTUAL or link.name == "lo":
                self.remove(link)
            else:
                taken = self.named(self.node, link.name)
                self.move(link, self.node, f"dev{link.index}" if taken else link.name)
        return_home(self, space)

    @contextmanager
    def open_pod(
        self, netns: Namespace | None, *, patience: float = PATIENCE, rdma: Path = DEVICES
    ) -> Iterator[PodNetwork]:
        """Yield the network of a pod, as steps.open_pod does, but wait for no GID."""
        if netns is not None and (isinstance(netns, int) or netns not in self._spaces):
            raise Unavailable(f"the network namespace {netns} is gone")
        yield FakePod(self, None if netns is None else self._spaces[netns], patience)
