"""One ADD, from the shim's bytes to the answer; tests/house/test_flows.py counts its files."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.cni import protocol
from kube_rdma.adapters.cni.socket import CniSocket
from kube_rdma.model.attach.attachment import AttachmentKey
from kube_rdma.model.pools import Mode
from tests.unit.attach.network_world import POD, UID, World, card, config, container, share


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


async def added(folder, network):
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
            answer = await asked(Path(short) / "agent.sock", request(path))
            serving.cancel()
    assert protocol.answer_head(answer[: protocol.ANSWER_HEADER])[0] == 0
    assert world.attachments.of(AttachmentKey(container(1))).complete


@pytest.fixture
def imported(tmp_path):
    """What is imported at the first ADD is there, so that its classes do not count."""
    asyncio.run(added(tmp_path / "first", "imported"))


@pytest.mark.usefixtures("imported")
async def test_one_add(tmp_path):
    await added(tmp_path / "second", "counted")
