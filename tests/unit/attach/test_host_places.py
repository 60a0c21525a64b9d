"""Where CNI is on a host: as its runtime says, and as its files say where that says nothing."""

from pathlib import PurePosixPath

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.node_networks import HostPlaces
from kube_rdma_testing.runtime.cri import FakeCriRuntime

SAID = {"PluginDirs": ["/data/cni"], "PluginConfDir": "/etc/cni/net.d", "Prefix": "eth"}


@pytest.fixture
async def runtime(tmp_path_factory):
    socket = tmp_path_factory.mktemp("r") / "s"
    async with FakeCriRuntime(socket, "containerd", "v2.4.2", {}) as found:
        found.socket = socket
        yield found


@pytest.fixture
def host(tmp_path):
    """With the usual folders, as the default manifest mounts them."""
    for folder in ("etc/cni/net.d", "opt/cni/bin"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


async def test_the_runtime_has_the_word(host, runtime):
    """Also where its folder is not mounted: the files that we see say nothing then."""
    places = HostPlaces(host, runtime.socket)
    assert (await places.find()).binaries == PurePosixPath("/opt/cni/bin")
    runtime.cni = SAID
    found = await places.find()
    assert (str(found.conf), str(found.binaries)) == ("/etc/cni/net.d", "/data/cni")
    assert found.source == f"containerd on {runtime.socket}"
    assert places.now == found


async def test_what_it_said_holds_while_it_is_away(host, runtime):
    """It restarts: its folders do not change by that."""
    runtime.cni = SAID
    places = HostPlaces(host, runtime.socket)
    found = await places.find()
    runtime.failing = True
    assert await places.find() == found
    runtime.failing, runtime.cni = False, SAID | {"PluginDirs": ["/a", "/b"]}
    moved = await places.find()
    assert (str(moved.binaries), moved.more) == ("/a", (PurePosixPath("/b"),))


async def test_one_that_never_answered_is_judged_by_its_files(host, tmp_path):
    """As one that says nothing; without files there is nothing to go by."""
    places = HostPlaces(host, tmp_path / "none")
    assert (await places.find()).source == "the list of usual folders"
    with pytest.raises(Refused, match="no container runtime says"):
        await HostPlaces(tmp_path / "empty", tmp_path / "none").find()


async def test_other_plugins_are_called_where_they_are_now(host, runtime):
    """After an upgrade in the new folder, whose name they are told."""
    places = HostPlaces(host, runtime.socket)
    await places.find()
    assert (places.root, places.folder, places.names()) == (str(host), "/opt/cni/bin", ())
    plugin = host / "data/cni/ptp"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("")
    plugin.chmod(0o755)
    runtime.cni = SAID
    await places.find()
    assert (places.folder, places.names()) == ("/data/cni", ("ptp",))
    assert places.inode("/data/cni/ptp") == plugin.stat().st_ino
