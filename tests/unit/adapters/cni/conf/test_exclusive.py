"""Beside a Cilium that keeps everybody out of the folder, and beside one that does not."""

from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.adapters.cni.conf.folder import FolderTiming, Writes
from kube_rdma.attach.rules.conflist import ENOUGH, shut_out
from kube_rdma.model.attach.cni import PLUGIN, SET_ASIDE, ConfPlan, UndoneWrites, Wiring
from kube_rdma_testing.cni.cilium import FILE, LIST, FakeCilium
from tests.kit.beside import beside
from tests.unit.adapters.cni.conf.host import Host

QUICK = FolderTiming(settle=0.0, first=0.1, calm=600.0, proof=0.1, look=0.05)
SLOW = FolderTiming(settle=0.0, first=60.0, calm=600.0, proof=0.1, look=600.0)


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    host.plugins("bin", "cilium-cni", "bridge")
    host.put(FILE, LIST)
    return host


@asynccontextmanager
async def running(cilium):
    async with beside(cilium.run()):
        yield cilium


def errors(host):
    return [kept.error for kept in host.told]


async def test_an_exclusive_cilium_is_known_and_told_of_once(host):
    """Nobody is told that the agent is called; tries go on, and are no news."""
    async with running(FakeCilium(host.folder.path)) as cilium, host.kept(pace=QUICK):
        await host.until(1)
        await cilium.until(cilium.undone + 2)
    (error,) = errors(host)
    assert isinstance(error, Refused)
    assert str(error).startswith(f"{FILE}: Cilium took kube-rdma out again within a second")
    assert "--set cni.exclusive=false" in str(error)


async def test_when_its_setting_is_changed_the_agent_is_chained(host):
    """Without any change of the folder: Cilium finds its own text and writes nothing."""
    async with host.kept(pace=QUICK):
        async with running(FakeCilium(host.folder.path)):
            await host.until(1)
        assert isinstance(host.told[0].error, Refused)
        async with running(FakeCilium(host.folder.path, exclusive=False)):
            await host.until(2)
            assert host.types(FILE) == ["cilium-cni", PLUGIN]
    assert (host.told[1].error, host.told[1].plan.wiring) == (None, Wiring.CHAIN)


async def test_beside_others_cilium_the_agent_is_told_of_when_its_entry_stands(host):
    """Once, for nothing has changed in between."""
    async with running(FakeCilium(host.folder.path, exclusive=False)), host.kept(pace=QUICK):
        await host.until(1)
        assert host.types(FILE) == ["cilium-cni", PLUGIN]
    (kept,) = host.told
    assert (kept.error, kept.plan.wiring) == (None, Wiring.CHAIN)


async def test_a_cilium_that_starts_anew_is_no_quarrel(host):
    """It writes its file once, after the agent; the entry goes in again and stands."""
    async with host.kept(pace=SLOW):
        await host.until(1)
        FakeCilium(host.folder.path, exclusive=False).set_up()
        await host.until(2)
        assert host.types(FILE) == ["cilium-cni", PLUGIN]
    assert errors(host) == [None, None]


async def test_a_file_of_ours_that_cilium_sets_aside_says_enough(host):
    """Our own list stood for a lone plugin when Cilium came."""
    (host.folder.path / FILE).unlink()
    host.put("10-bridge.conf", '{"cniVersion": "1.0.0", "name": "a", "type": "bridge"}')
    async with host.kept(pace=SLOW):
        await host.until(1)
        async with running(FakeCilium(host.folder.path)):
            await host.until(2)
    first, second = errors(host)
    assert first is None
    assert f"Cilium renamed 00-kube-rdma.conflist to *{SET_ASIDE}" in str(second)
    names = sorted(path.name for path in host.folder.path.iterdir())
    assert f"00-kube-rdma.conflist{SET_ASIDE}" in names


GUARDED = ConfPlan(Wiring.CHAIN, FILE, guard="Cilium")


@given(st.integers(0, 9), st.lists(st.just("zz-kube-rdma.conf"), max_size=1).map(tuple))
def test_one_undoing_is_no_proof_a_second_one_is(times, aside):
    """And only where somebody is known to guard the folder; the sentence says what to set."""
    undone = UndoneWrites(times, aside)
    error = shut_out(GUARDED, undone)
    assert (error is not None) == (times >= ENOUGH or bool(aside))
    assert error is None or "--set cni.exclusive=false" in error.remedy
    assert shut_out(ConfPlan(Wiring.CHAIN, "10-net.conflist"), undone) is None


def test_what_stood_for_longer_was_not_undone_at_once(tmp_path):
    """The kernel's own times count, whenever somebody looks."""
    writes, path = Writes(), tmp_path / FILE
    path.write_text("ours")
    writes.note([path])
    path.with_name("x").write_text("theirs")
    path.with_name("x").rename(path)
    assert writes.look([path]) == UndoneWrites(1)
    assert writes.look([path]) == UndoneWrites(1)
    writes.note([path])
    assert writes.look([path]) == UndoneWrites(2)
    writes.note([path])
    path.unlink()
    assert writes.look([path]) == UndoneWrites(0)
    assert writes.look([]) == UndoneWrites()
