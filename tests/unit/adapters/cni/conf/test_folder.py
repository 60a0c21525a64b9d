"""The host's folders kept as planned, whoever else writes there."""

import asyncio
import json
import os
import platform
import shutil
from pathlib import PurePosixPath

import pytest

from kube_base import os_files
from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.cni.conf import places
from kube_rdma.adapters.cni.conf.folder import ConfFolder, FolderTiming, remove
from kube_rdma.attach.documents import cni_conf
from kube_rdma.attach.rules.conflist import plan, unplan
from kube_rdma.model.attach.cni import HOOK_PROGRAM, IPAM_PLUGIN, PLUGIN, ConfFile, ConfPlan, Wiring
from tests.unit.adapters.cni.conf.host import AT_ONCE, OTHERS, PLACES, Host, chain

LIST = '{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge"}]}'
LONE = '{"cniVersion": "1.0.0", "name": "net", "type": "bridge"}'


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


async def test_a_host_is_wired(host):
    """The binary is there before the list names it; both are told of, once."""
    host.put("10-net.conflist", LIST)
    async with host.kept():
        await host.until(1)
        assert host.types("10-net.conflist") == ["bridge", PLUGIN]
        assert (host.binaries / PLUGIN).read_bytes() == b"shim"
        assert (host.binaries / PLUGIN).stat().st_mode & 0o777 == 0o755
    (kept,) = host.told
    assert (kept.installed, kept.plan.wiring) == (True, Wiring.CHAIN)


async def test_a_rewritten_file_is_chained_again(host):
    """Its owner starts anew and forgets us; also when its file comes later than we do."""
    async with host.kept():
        await host.until(1)
        host.put("10-net.conflist", LIST)
        await host.until(2)
        host.put("10-net.conflist", LIST.replace("bridge", "ptp"))
        await host.until(3)
        assert host.types("10-net.conflist") == ["ptp", PLUGIN]
    assert [kept.quarrel for kept in host.told] == [0, 0, 1]


async def test_a_meta_plugin_comes_and_goes(host):
    """Each time it is told who calls us now, also by a keeper that finds all as it should be."""
    host.put("10-net.conflist", LIST)
    async with host.kept():
        await host.until(1)
        host.put("00-multus.conf", json.dumps({"cniVersion": "1.0.0", "type": "multus"}))
        await host.until(2)
        assert host.types("10-net.conflist") == ["bridge"]
    async with host.kept():
        await host.until(3)
        (host.folder.path / "00-multus.conf").unlink()
        await host.until(4)
        assert host.types("10-net.conflist") == ["bridge", PLUGIN]
    chain, delegate = Wiring.CHAIN, Wiring.DELEGATE
    assert [kept.plan.wiring for kept in host.told] == [chain, delegate, delegate, chain]


async def test_a_removed_binary_comes_back(host):
    """A configuration that names a binary which is not there would stop every pod."""
    async with host.kept():
        await host.until(1)
        (host.binaries / PLUGIN).unlink()
        await host.until(2)
        assert (host.binaries / PLUGIN).exists()


async def test_a_quarrel_gets_slower(host):
    """Against a writer who undoes us at once, the keeper waits instead of writing on and on."""
    host.put("10-net.conflist", LIST)
    async with host.kept(pace=FolderTiming(settle=0.0, first=3600.0, longest=3600.0)):
        for count in (1, 2):
            await host.until(count)
            host.put("10-net.conflist", LIST)
        # The third round waits for an hour: what we left is what the other wrote.
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(host.told) == 2
        assert host.text("10-net.conflist") == LIST


async def test_a_refusal_is_told_and_looked_at_again(host):
    """It stands until somebody changes the folder."""
    host.put("10-net.conflist", LIST.replace("1.0.0", "0.2.0"))
    async with host.kept():
        await host.until(1)
        host.put("10-net.conflist", LIST.replace("1.0.0", "0.2.0") + " ")
        host.put("10-net.conflist", LIST)
        await host.until(2)
        assert host.types("10-net.conflist") == ["bridge", PLUGIN]
    refused, kept = host.told
    assert isinstance(refused.error, Refused)
    assert kept.error is None


async def test_what_is_refused_keeps_its_binary(host):
    """It may name us from before, and then no pod would start without it."""
    host.put("10-net.conflist", LIST.replace("1.0.0", "0.2.0"))
    async with host.kept():
        await host.until(1)
        (host.binaries / PLUGIN).unlink()
        await host.until(2)
        assert (host.binaries / PLUGIN).exists()
    assert [kept.installed for kept in host.told] == [True, True]


async def test_what_is_down_is_tried_again(host):
    """Without any change of the folder; it is told once, and when it is over."""
    down = 3

    def decide(files, binaries):
        nonlocal down
        down -= 1
        if down > 0:
            raise Unavailable("Down.")
        return chain(files, binaries)

    host.put("10-net.conflist", LIST)
    async with host.kept(decide):
        await host.until(2)
    assert [str(kept.error) for kept in host.told] == ["Down.", "None"]


async def test_a_folder_that_is_removed_ends_the_keeper(host):
    """Whoever runs it starts it again, on the new folder."""
    async with host.kept() as task:
        await host.until(1)
        host.folder.path.rmdir()
        with pytest.raises(Unavailable, match=r"was removed or moved"):
            await task


async def test_a_folder_that_is_not_the_runtimes_is_not_used(host):
    """A manifest of another distribution: nothing is written, the sentence says what to mount."""
    host.put(
        "10-gke-ptp.conflist",
        LIST.replace('{"type": "bridge"}', '{"type": "ptp"}, {"type": "portmap"}'),
    )
    before = host.text("10-gke-ptp.conflist")
    async with host.kept():
        await host.until(1)
    (kept,) = host.told
    assert kept.plan.wiring is Wiring.NONE
    assert isinstance(kept.error, Refused)
    assert str(kept.error).startswith(
        "/net.d/10-gke-ptp.conflist: it calls portmap, not to be found"
    )
    assert f"in /bin as the agent sees it below {host.root}" in str(kept.error)
    assert "docs/agent.md" in str(kept.error)
    assert host.text("10-gke-ptp.conflist") == before
    assert not (host.binaries / PLUGIN).exists()


async def test_a_plugin_that_comes_late_is_waited_for(host):
    """The cluster's network may write its list first; no file of the configuration changes then."""
    host.put("10-net.conflist", LIST.replace("bridge", "late"))
    async with host.kept():
        await host.until(1)
        host.plugins("bin", "late")
        await host.until(2)
        assert host.types("10-net.conflist") == ["late", PLUGIN]
    assert [kept.error is None for kept in host.told] == [False, True]


async def test_plugins_may_lie_in_several_folders(host):
    """The runtime looks in all of them; ours is in the first."""
    host.places = replace(PLACES, more=(PurePosixPath("/usr/libexec/cni"),))
    host.plugins("usr/libexec/cni", "portmap")
    host.put("10-net.conflist", LIST.replace("bridge", "portmap"))
    async with host.kept():
        await host.until(1)
        assert host.types("10-net.conflist") == ["portmap", PLUGIN]
        assert (host.binaries / PLUGIN).exists()


async def test_the_runtime_may_look_elsewhere_after_an_upgrade(host):
    """The binary goes where it looks now, before a pod starts there; both folders are watched."""
    host.put("10-net.conflist", LIST)
    async with host.kept(pace=replace(AT_ONCE, look=0.01)):
        await host.until(1)
        moved = host.plugins("data/cni")
        host.places = replace(PLACES, binaries=PurePosixPath("/data/cni"))
        await host.until(2)
        assert (moved / PLUGIN).read_bytes() == b"shim"
        (moved / PLUGIN).unlink()
        await host.until(3)
        assert (moved / PLUGIN).exists()
    assert [kept.error for kept in host.told] == [None, None, None]


async def test_a_folder_that_moved_is_no_folder_that_was_removed(host):
    """The new one is found before the old one is missed."""
    host.put("10-net.conflist", LIST)
    async with host.kept() as task:
        await host.until(1)
        host.plugins("data/cni")
        host.places = replace(PLACES, binaries=PurePosixPath("/data/cni"))
        shutil.rmtree(host.binaries)
        await host.until(2)
        assert (host.root / "data/cni" / PLUGIN).exists()
        assert not task.done()


def test_a_file_that_changed_meanwhile_is_not_overwritten(host):
    """The plan was made for another text: it is made anew."""
    host.put("10-net.conflist", LIST)
    seen = host.folder.read()
    host.put("10-net.conflist", LONE)
    assert not host.folder.apply(plan(seen), seen)
    assert host.text("10-net.conflist") == LONE


def test_a_file_keeps_its_rights(host):
    """Others who read it go on to; nothing is left beside it."""
    host.put("10-net.conflist", LIST)
    (host.folder.path / "10-net.conflist").chmod(0o640)
    seen = host.folder.read()
    assert host.folder.apply(plan(seen), seen)
    (path,) = host.folder.path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_is_no_configuration_is_not_read(host):
    """Folders, other endings, bytes that are no text, and files of a size that none has."""
    host.put("a.conflist.bak", LIST)
    host.put("c.conf", " " * ((1 << 20) + 1))
    (host.folder.path / "b.conf").write_bytes(b"\xff\xfe")
    (host.folder.path / "d.conflist").mkdir()
    (host.folder.path / "e.conflist").symlink_to("/nowhere")
    host.put("f.conflist", LIST)
    assert host.folder.read() == (ConfFile("f.conflist", LIST),)


@pytest.mark.parametrize(("name", "text"), [("10-net.conflist", LIST), ("10-net.conf", LONE)])
async def test_it_all_can_be_undone(host, name, text):
    """The configuration is what it was, and then the binary goes."""
    host.put(name, text)
    async with host.kept():
        await host.until(1)
    remove(host.folder, host.binaries, unplan)
    assert [path.name for path in host.folder.path.iterdir()] == [name]
    assert json.loads(host.text(name)) == json.loads(text)
    assert sorted(path.name for path in host.binaries.iterdir()) == sorted(OTHERS)
    remove(host.folder, host.binaries, unplan)


async def test_a_list_whose_plugins_lie_in_a_folder_is_wired_there_and_left(host):
    """Case of containernetworking/cni#1052: libcni 1.3 takes it, and no file behind it."""
    host.put("05-x.conflist", '{"cniVersion": "1.1.0", "name": "k8s-pod-network"}')
    host.put("10-net.conflist", LIST)
    beside = host.folder.path / "k8s-pod-network"
    beside.mkdir()
    (beside / "10.conf").write_text('{"type": "ptp", "name": "part"}')
    (beside / "notes.json").write_text('{"type": "none"}')
    async with host.kept():
        await host.until(1)
        assert json.loads((beside / "zz-kube-rdma.conf").read_text())["type"] == PLUGIN
    assert host.types("10-net.conflist") == ["bridge"]
    assert host.told[-1].plan.default == "05-x.conflist"
    assert cni_conf.names(host.folder.read()) == ("k8s-pod-network", "net"), "a part is no network"
    remove(host.folder, host.binaries, unplan)
    assert sorted(path.name for path in beside.iterdir()) == ["10.conf", "notes.json"]


async def test_a_folder_with_a_second_name_is_wired_once_and_a_circle_hinders_nobody(host):
    """The list calls the link; the file in the folder itself would be no list's, and removed."""
    host.put("05-x.conflist", '{"cniVersion": "1.1.0", "name": "a-link"}')
    for name in ("folder", "other"):
        (host.folder.path / name).mkdir()
    (host.folder.path / "folder/10.conf").write_text('{"type": "ptp"}')
    (host.folder.path / "a-link").symlink_to("folder")
    (host.folder.path / "other/1.conf").symlink_to("1.conf")
    for _ in range(3):
        seen = host.folder.read()
        assert host.folder.apply(plan(seen), seen)
    assert (host.folder.path / "folder/zz-kube-rdma.conf").exists()
    assert not plan(host.folder.read()).changes


@pytest.mark.parametrize("planned", [plan, unplan])
def test_a_change_below_the_folder_is_announced_in_it(host, planned):
    """A runtime watches the folder alone, and reads it again when something goes there."""
    host.put("05-x.conflist", '{"cniVersion": "1.1.0", "name": "k8s"}')
    (host.folder.path / "k8s").mkdir()
    (host.folder.path / "k8s/10.conf").write_text('{"type": "ptp"}')
    if planned is unplan:
        host.folder.apply(plan(host.folder.read()), host.folder.read())
    before = sorted(path.name for path in host.folder.path.iterdir())
    os.utime(host.folder.path, (0, 0))
    seen = host.folder.read()
    assert host.folder.apply(planned(seen), seen)
    assert host.folder.path.stat().st_mtime > 0
    assert sorted(path.name for path in host.folder.path.iterdir()) == before


def test_the_binary_is_written_only_when_it_differs(tmp_path):
    """The same content is left alone; other content or rights are replaced in one step."""
    assert places.install(b"one", tmp_path)
    before = (tmp_path / PLUGIN).stat().st_ino
    assert not places.install(b"one", tmp_path)
    assert (tmp_path / PLUGIN).stat().st_ino == before
    (tmp_path / PLUGIN).chmod(0o644)
    assert places.install(b"one", tmp_path)
    assert places.install(b"two", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(places.NAMES)
    (tmp_path / IPAM_PLUGIN).unlink()
    assert places.install(b"two", tmp_path)


def test_a_hook_outlives_a_roll_back_to_a_shim_that_knows_none(tmp_path):
    """Only the plugins' names are written by an agent from before hooks."""
    places.install(b"knows hooks", tmp_path)
    for name in (PLUGIN, IPAM_PLUGIN):
        os_files.replace(tmp_path / name, b"knows none", 0o755)
    assert (tmp_path / HOOK_PROGRAM).read_bytes() == b"knows hooks"
    places.uninstall(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    """A file in the place of a folder: the sentence names what was to be changed."""
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=r"file/kube-rdma cannot be changed"):
        places.install(b"one", tmp_path / "file")
    with pytest.raises(Unavailable, match=r"file cannot be used"):
        ConfFolder(tmp_path / "file").read()
    made = ConfPlan(Wiring.CHAIN, "a.conf", (ConfFile("a.conf", LONE),))
    with pytest.raises(Unavailable, match=r"x cannot be used"):
        ConfFolder(tmp_path / "x").apply(made, ())


def test_an_installation_without_a_shim_says_so(tmp_path):
    """A checkout has none; what was built for this machine is found."""
    with pytest.raises(Unavailable, match=r"has no shim for"):
        places.shim(tmp_path)
    path = tmp_path / platform.machine() / PLUGIN
    path.parent.mkdir()
    path.write_bytes(b"elf")
    assert places.shim(tmp_path) == b"elf"
