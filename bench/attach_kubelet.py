"""The kubelet of `attach`: `python -m bench.attach_kubelet FOLDER [RESOURCE SHARE]`, until killed.

A process of its own, so that its work is in no figure of the agent's CPU. It knows no pod, or says
of every one that it holds the share.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_rdma.adapters.kubelet.proto import podresources_v1_pb2 as pb
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.kubelet.pod_resources import FakePodResources


class OneShare(FakePodResources):
    """The pod resources API of a node where every pod has this share."""

    def __init__(self, kubelet: FakeKubelet, resource: str, share: str) -> None:
        super().__init__(kubelet.store)
        self._held = pb.ContainerDevices(resource_name=resource, device_ids=[share])

    def _pod(self, namespace: str, name: str) -> pb.PodResources:
        container = pb.ContainerResources(name="main", devices=[self._held])
        return pb.PodResources(namespace=namespace, name=name, containers=[container])


@contextmanager
def kubelet(folder: Path, *share: str) -> Iterator[None]:
    """One that answers in `folder`."""
    folder.mkdir()
    command = [sys.executable, "-m", "bench.attach_kubelet", str(folder), *share]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()  # it is ready
            yield
        finally:
            process.kill()


async def main(folder: Path, *share: str) -> None:
    """Answer until killed."""
    kubelet = FakeKubelet.at(folder)
    if share:
        kubelet.pod_resources = OneShare(kubelet, *share)
    async with kubelet:
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
