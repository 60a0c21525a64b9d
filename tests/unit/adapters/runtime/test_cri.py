"""What a container runtime says of itself and of its sandboxes, and what is made of it."""

import asyncio

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.runtime import cri
from kube_rdma.model.late_binding import MadeContainer, PodName, PodSandbox, Runtime
from kube_rdma_testing.runtime.cri import FakeCriRuntime


@pytest.fixture
def socket(tmp_path_factory):
    """Not tmp_path: with the name of the test in it no socket would fit (107 characters)."""
    return tmp_path_factory.mktemp("r") / "s"


@pytest.mark.parametrize(
    ("config", "cdi"),
    [
        ({"enableCRIU": None}, None),  # containerd 2.4
        ({"enableCDI": None}, None),
        ({"enableCDI": True}, True),
        ({"enableCDI": False}, False),
        ({"enableCDI": "yes"}, None),
        ({"sandboxImage": "pause"}, None),  # CRI-O
        ([], None),
        ("sandbox_image = 1", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
async def test_what_it_says_of_cdi(socket, config, cdi):
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", config):
        assert await cri.read_runtime(socket) == Runtime("containerd", "v2.4.2", cdi)


@pytest.mark.parametrize(
    ("cni", "conf", "binaries"),
    [
        ({"PluginDirs": ["/a", "/b"], "PluginConfDir": "/c", "Networks": None}, "/c", ("/a", "/b")),
        ({"PluginDirs": ["/a"]}, "", ()),
        ({"PluginDirs": [], "PluginConfDir": "/c"}, "", ()),
        ({"PluginDirs": "/a", "PluginConfDir": 1}, "", ()),
        (None, "", ()),  # CRI-O
        ([], "", ()),
    ],
)
async def test_what_it_says_of_cni(socket, cni, conf, binaries):
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as runtime:
        runtime.cni = cni
        found = await cri.read_runtime(socket)
    assert (found.cni_conf, found.cni_binaries) == (conf, binaries)


async def test_its_socket_is_the_first_that_is_there(socket):
    first, second = socket.with_name("a"), socket.with_name("b")
    first.touch()
    known = (first, second, socket)
    assert cri.find_socket(known) == first
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}):
        assert cri.find_socket(known) == socket


async def test_no_runtime(socket):
    with pytest.raises(Unavailable, match=r"No such file or directory.*hostPath"):
        await cri.read_runtime(socket)


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 1000])
async def test_something_else_on_its_socket(socket, data):
    async def answer(reader, writer):
        await reader.read(65536)
        writer.write(data)
        writer.close()

    server = await asyncio.start_unix_server(answer, str(socket))
    with pytest.raises(Unavailable, match="does not answer"):
        await cri.read_runtime(socket)
    server.close()
    await server.wait_closed()


LIVING = PodSandbox("c1", PodName("default", "a"), "uid-a", ready=True, created=1_700_000_000_000)
STOPPED = PodSandbox("c0", PodName("default", "a"), "uid-a", ready=False, created=5)
HOST = PodSandbox("c2", PodName("kube-system", "b"), "uid-b", ready=True, created=7)
NETNS = "/var/run/netns/cni-1"


@pytest.fixture
async def runtime(socket):
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as found:
        found.run(STOPPED, NETNS)
        found.run(LIVING, NETNS)
        found.run(HOST)
        yield found


async def test_its_sandboxes(socket, runtime):
    assert await cri.read_sandboxes(socket) == (STOPPED, LIVING, HOST)
    runtime.remove("c2")
    assert await cri.read_sandboxes(socket) == (STOPPED, LIVING)


async def test_where_a_sandbox_has_its_network_namespace(socket, runtime):
    assert await cri.read_netns(socket, "c1") == NETNS
    assert await cri.read_netns(socket, "c2") == ""


@pytest.mark.parametrize("container", ["c0", "c9"])
async def test_a_sandbox_that_has_ended_has_no_namespace(socket, runtime, container):
    with pytest.raises(Unavailable, match=f"sandbox {container}"):
        await cri.read_netns(socket, container)


async def test_a_runtime_that_starts_lists_nothing(socket, runtime):
    runtime.failing = True
    with pytest.raises(Unavailable, match="not initialized"):
        await cri.read_sandboxes(socket)


SPEC = {
    "process": {"env": ["A=1=2", "B", 7]},
    "linux": {"devices": [{"path": "/dev/x"}, 1]},
    "mounts": [
        {"destination": "/a", "source": "/b", "type": "bind"},
        {"destination": "/dev", "source": "tmpfs", "type": "tmpfs"},
    ],
}


async def test_what_a_container_was_made_with(socket, runtime):
    runtime.make("c5", SPEC)
    made = MadeContainer((("A", "1=2"),), ("/dev/x",), (("/a", "/b"),))
    assert await cri.read_container(socket, "c5") == made


@pytest.mark.parametrize("spec", [None, [], {}, {"process": 1}, {"process": {}}])
async def test_a_container_without_a_spec_is_not_seen(socket, runtime, spec):
    runtime.make("c5", spec)
    with pytest.raises(Unavailable, match="container c5"):
        await cri.read_container(socket, "c5")
    with pytest.raises(Unavailable, match="container c6"):
        await cri.read_container(socket, "c6")
