"""How many files a reader has to open for one ADD, from the shim's bytes to the answer.

Counted while it runs: each file of the product of which a function is called. The fakes stand for
the kernel, the disk, IPAM and late binding; network_world's Node for the node, the pod and the API
server. What a fake calls in turn is the neighbour's, and the values of model/ are no step of the
way, so neither counts. Before attach/rules/procedure these were 47.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import kube_rdma
from kube_base.frozen import replace
from kube_rdma.adapters.cni import protocol
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.model.attach.attachment import AttachmentKey
from kube_rdma.model.pools import Mode
from tests.unit.attach.network_world import POD, UID, World, card, config, container, share

MOST = 40
PRODUCT = f"{Path(kube_rdma.__file__).parent}/"
FAKES = ("/kube_rdma_testing/", "/network_life.py", "/other_plugin.py")


class Visits:
    """The files in which functions were called, in all threads that begin meanwhile."""

    def __init__(self):
        self.files = set()

    def __call__(self, frame, event, _argument):
        code = frame.f_code
        name = code.co_filename.removeprefix(PRODUCT)
        if event != "call" or name == code.co_filename or name in self.files:
            return
        if code.co_name != "<module>" and not name.startswith("model/") and not _is_below(frame):
            self.files.add(name)

    @contextmanager
    def counted(self):
        before = sys.getprofile(), threading.getprofile()
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before[0])
            threading.setprofile(before[1])


def _is_below(frame):
    """Whether a fake called it, however far up."""
    while frame := frame.f_back:
        if any(fake in frame.f_code.co_filename for fake in FAKES):
            return True
    return False


def request(path):
    """What the shim sends when the runtime calls it behind the cluster's plugin."""
    environment = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": container(1),
        "CNI_NETNS": str(path),
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": f"K8S_POD_NAMESPACE={POD.namespace};K8S_POD_NAME={POD.name};K8S_POD_UID={UID}",
    }
    before = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": str(path)}]}
    conf = {"cniVersion": "1.0.0", "name": "pods", "type": "kube-rdma", "prevResult": before}
    entries = b"".join(f"{key}={value}\0".encode() for key, value in environment.items())
    return protocol.request(entries, json.dumps(conf).encode())


async def asked(path, sent):
    """The answer of the agent's socket, with this namespace's descriptor beside the request."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(path))
        netns = os.open("/proc/self/ns/net", os.O_RDONLY)
        socket.send_fds(connection, [sent], [netns])
        os.close(netns)
        answer = b""
        while piece := await loop.sock_recv(connection, 1 << 16):
            answer += piece
        return answer


async def added(folder, network, visits):
    """One ADD of a new node for a pod that asks for a network of this name."""
    networks = {f"default/{network}": config("macvlan")}
    world = World(folder, [card(0)], [share(card(0), Mode.SHARED_MULTI)], networks)
    number = world.sandbox()
    world.ask(network)
    path = folder / "netns-1"

    async def handler(call):
        return await world.calls.answer(replace(call, netns=number))

    with tempfile.TemporaryDirectory(prefix="cni-") as short:
        async with CniSocket(Path(short) / "agent.sock", handler) as server:
            serving = asyncio.create_task(server.serve())
            with visits.counted():
                answer = await asked(Path(short) / "agent.sock", request(path))
            serving.cancel()
    assert protocol.answer_head(answer[: protocol.ANSWER_HEADER])[0] == 0
    assert world.attachments.of(AttachmentKey(container(1))).complete


async def test_one_add_goes_through_few_files(tmp_path):
    """A new one means: merge two that are one thing, or say why in this number."""
    await added(tmp_path / "first", "imported", Visits())  # what is imported late is there now
    visits = Visits()
    await added(tmp_path / "second", "counted", visits)
    ways = "attach/attach.py", "attach/rules/procedure.py"
    assert visits.files.issuperset(ways)
    assert len(visits.files) <= MOST, "\n".join(sorted(visits.files))


def test_a_call_of_a_fake_does_not_count_and_one_of_the_product_does():
    """The planted case: without it the count could be of nothing."""
    visits = Visits()
    with visits.counted():
        protocol.request(b"", b"")
        os.getpid()
    assert visits.files == {"adapters/cni/protocol.py"}
