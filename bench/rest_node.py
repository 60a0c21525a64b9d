"""The node of `rest`: `unshare --net --mount python -m bench.rest_node FOLDER PACKAGE`.

All that an agent talks to on a node that has nothing to do: an API server over TLS that tells
bookmarks each minute as the real one does, a kubelet, a container runtime, eight cards in a made-up
/sys with a link each. The agent is another process in these namespaces, and cannot tell. A number
on standard input is so many more pods, each with a share of a card and a network with an address.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
from grpclib.client import Channel

from bench.attach_node import documents, make_rails, new_namespace, rails
from bench.shim import BUILD, CALL, CONFIG
from bench.standin import RESOURCE, card, write_config, write_node
from kube_client.kinds import NOTHING, ObjectKind
from kube_client.wire import ApiRequest
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import POD
from kube_rdma.adapters.kubelet.proto import dra_health_v1alpha1_pb2
from kube_rdma.adapters.kubelet.proto.dra_health_v1alpha1_grpc import DRAResourceHealthStub
from kube_rdma.attach.rules.requests import ANNOTATION
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.late_binding import ContainerId, PodName, PodSandbox
from kube_rdma_lab.pki import Authority
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kubelet.devices import ContainerPlace
from kube_rdma_testing.kubelet.kubelet import FakeKubelet
from kube_rdma_testing.runtime.cri import FakeCriRuntime

NODE_NAME, NETWORK, SHARES, AT_ONCE = "node-1", "rail-0", 100, 4
BOOKMARK_SECONDS = 60.0
_NAMESPACED = {"leases", "events", "network-attachment-definitions", "resourceclaims"}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18  # sys/mount.h


class ApiServer:
    """The API server of tests behind HTTPS; a resource that is asked for is there."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self._line = server.line()
        self._known = {"nodes", "pods", IP_POOL.plural, DEFINITION.plural}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer on one connection until its end."""
        state = h11.Connection(h11.SERVER)
        try:
            while await self._answer(state, reader, writer):
                state.start_next_cycle()
        except (OSError, h11.ProtocolError):
            pass  # the client has gone
        finally:
            writer.close()

    async def _answer(
        self, state: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head, body = None, b""
        while not isinstance(event := state.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                state.receive_data(await reader.read(1 << 16))
            elif isinstance(event, h11.ConnectionClosed):
                return False
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
        assert head
        request = self._request(head, body)

        def send(event: h11.Event) -> None:
            writer.write(state.send(event) or b"")

        kind = [("Content-Type", "application/json")]
        if request.verb != "watch":
            answer = await self._line.send(request)
            send(h11.Response(status_code=answer.status, headers=kind))
            send(h11.Data(answer.body))
        else:
            send(h11.Response(status_code=200, headers=kind))
            async with self._line.stream(request, 300) as stream:
                lines = stream.lines
                reading = asyncio.ensure_future(anext(lines, None))
                while True:
                    done, _ = await asyncio.wait((reading,), timeout=BOOKMARK_SECONDS)
                    data = reading.result() if done else self._bookmark()
                    if data is None:
                        break
                    send(h11.Data(data + b"\n"))
                    if done:
                        reading = asyncio.ensure_future(anext(lines, None))
        send(h11.EndOfMessage())
        await writer.drain()
        return True

    def _bookmark(self) -> bytes:
        meta = {"resourceVersion": str(self.server.store.revision), "creationTimestamp": None}
        return json.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}).encode()

    def _request(self, head: h11.Request, body: bytes) -> ApiRequest:
        url = urlsplit(head.target.decode())
        query = tuple(parse_qsl(url.query))
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        group, version, *parts = ("", *parts[1:]) if parts[0] == "api" else parts[1:]
        space = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
        plural, name, sub, *_ = *(parts[2:] if space else parts), "", "", ""
        if plural not in self._known:
            self._known.add(plural)
            kind = ObjectKind(
                group, version, plural, plural, plural in _NAMESPACED, spec=NOTHING, status=NOTHING
            )
            self.server.add(kind)
        read = "watch" if ("watch", "true") in query else "get" if name else "list"
        headers = dict(head.headers)
        kind_of = headers.get(b"content-type", b"application/json").decode()
        verb = _VERBS.get(head.method.decode(), read)
        return ApiRequest(
            verb, group, version, plural, space, name, sub, query, bytes(body), kind_of
        )


class Node:
    """What is on the node; `add` is one more pod."""

    def __init__(self, folder: Path, server: FakeServer) -> None:
        self.folder = folder
        self.server = server
        root = folder / "kubelet"
        root.mkdir()
        self.kubelet = FakeKubelet.at(root)
        self.runtime = FakeCriRuntime(
            folder / "runtime.sock", "containerd", "v2.4.2", {"enableCDI": True}
        )
        self._made = 0
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def add(self) -> None:
        """Start a pod as kubelet and runtime do: Allocate, then ADD by the shim on the host."""
        self._made += 1
        number, name = self._made, f"train-{self._made}"
        async with self._slots:
            meta = {"name": name, "namespace": "default", "annotations": {ANNOTATION: NETWORK}}
            spec = {"nodeName": NODE_NAME, "containers": [{"name": "main", "image": "x"}]}
            document = {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}
            self.server.put(POD, document)
            uid = self.server.documents("pods")[-1]["metadata"]["uid"]
            share = sorted(self.kubelet.store.healthy(RESOURCE))[number]
            await self.kubelet.allocate(RESOURCE, 1, (share,), place=ContainerPlace(name))
            path = f"/proc/{os.getpid()}/fd/{new_namespace()}"
            container = ContainerId(f"{number:064x}")
            pod = PodName("default", name)
            environment = {
                **CALL,
                "CNI_CONTAINERID": container,
                "CNI_NETNS": path,
                "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};"
                f"K8S_POD_UID={uid}",
                "KUBE_RDMA_ROOT": str(self.folder),
            }
            shim = self.folder / "host/opt/cni/bin/kube-rdma"
            done = await asyncio.to_thread(
                subprocess.run,
                [str(shim)],
                env=environment,
                input=CONFIG,
                capture_output=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"ADD failed: {done.stdout.decode()}{done.stderr.decode()}")
            self.runtime.run(PodSandbox(container, pod, uid, ready=True), path)


def kubeconfig(folder: Path, authority: Authority, port: int) -> None:
    """Write the agent's."""
    named = {"name": "rest"}
    document = {
        "current-context": "rest",
        "contexts": [{**named, "context": {"cluster": "rest", "user": "rest"}}],
        "clusters": [
            {
                **named,
                "cluster": {
                    "server": f"https://127.0.0.1:{port}",
                    "certificate-authority": str(folder / "ca.crt"),
                },
            }
        ],
        "users": [{**named, "user": {"token": "x"}}],
    }
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "kubeconfig").write_text(json.dumps(document))


def make_host(folder: Path, package: Path) -> None:
    """Make the host's root, with a cluster's network, and the /sys of eight cards.

    The agent's `package` has a shim, as that of an image, which looks for its agent in the folder.
    """
    layer = folder / "layer/shim" / platform.machine()
    layer.mkdir(parents=True)
    words = (platform.machine(), str(layer / "kube-rdma"), "--test")
    subprocess.run((sys.executable, str(BUILD), *words), check=True)
    for name in ("host/etc/cni/net.d", "host/opt/cni/bin", "run/kube-rdma", "cdi"):
        (folder / name).mkdir(parents=True)
    (folder / "host/opt/cni/bin/bridge").touch(0o755)
    network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}
    (folder / "host/etc/cni/net.d/10-pods.conflist").write_text(json.dumps(network))
    write_node(folder / "sys", [card(number) for number in range(8)])
    write_config(folder, {"mode": "shared-multi", "shares": SHARES})
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    make_rails()
    mount = ctypes.CDLL(None, use_errno=True).mount
    mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    conf = package / "adapters/cni/conf"
    layers = f"lowerdir={folder}/layer:{conf}".encode()
    if mount(b"overlay", bytes(conf), b"overlay", 0, layers):
        raise OSError(ctypes.get_errno(), "the shim cannot be mounted")
    if mount(bytes(folder / "sys"), b"/sys", None, _MS_BIND, None):
        raise OSError(ctypes.get_errno(), "the made-up /sys cannot be mounted")


async def watch_health(socket: Path) -> None:
    """Follow the health of the driver's devices, as the kubelet does."""
    channel = Channel(path=str(socket))
    async with DRAResourceHealthStub(channel).NodeWatchResources.open() as stream:
        await stream.send_message(dra_health_v1alpha1_pb2.NodeWatchResourcesRequest(), end=True)
        async for _ in stream:
            pass


async def main(folder: Path, package: Path) -> None:
    """Serve until standard input ends."""
    make_host(folder, package)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
    server = FakeServer()
    server.add(IP_POOL)
    server.add(DEFINITION)
    api = ApiServer(server)
    documents(server, rails(folder / "sys"))
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    info = {"nodeInfo": {"kubeletVersion": "v1.36.3"}, "addresses": addresses}
    server.put(NODE, {"metadata": {"name": NODE_NAME}, "spec": {}, "status": info})
    authority = Authority("rest")
    pair = authority.issue("api", hosts=("127.0.0.1",))
    pair.write(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    listening = await asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=context)
    kubeconfig(folder, authority, listening.sockets[0].getsockname()[1])
    node = Node(folder, server)
    tasks = set[asyncio.Task[None]]()
    async with node.kubelet, node.runtime, listening:
        print(json.dumps({"pid": os.getpid()}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            count = int(line)
            if count:
                await asyncio.gather(*(node.add() for _ in range(count)))
            else:
                await node.kubelet.until(lambda: node.kubelet.healthy(RESOURCE) == SHARES * 8)
                health = folder / f"kubelet/plugins_registry/{DRIVER}.sock"
                if health.exists():
                    tasks.add(asyncio.create_task(watch_health(health)))
            print(json.dumps({}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
