"""Containers that hold cards by claims are told of them, each of its own."""

from __future__ import annotations

from kube_base.frozen import replace
from kube_rdma.adapters.runtime.settings import PodSettings
from kube_rdma.attach.claim_settings import ClaimSettings
from kube_rdma.model.attach.attachment import Sandbox
from kube_rdma.model.claims.claim import ClaimName, ClaimShare, PreparedClaim
from kube_rdma.model.holdings import ClaimingSandbox, Holding
from kube_rdma.model.late_binding import ContainerId, Edits, PodName, UsedDevice
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.pools.rules.pools import resolve
from tests.kit.nodes import CHAR_KINDS, hard_card, node

FIRST, SECOND = hard_card(0x81, 0, kinds=CHAR_KINDS), hard_card(0xA1, 1, kinds=CHAR_KINDS)
MULTI = PoolSpec("rdma/multi", Mode.SHARED_MULTI, "config.json:1", shares=4)
CLAIM = ClaimName("team", "nic", "uid-1")
POD = PodName("team", "job-0")
SANDBOX = Sandbox(ContainerId("s1"), POD, "uid-job-0", "/run/netns/a", 7)


def share(of, number):
    return ClaimShare(
        request="nic",
        pool="node-1",
        device="d",
        share_id=None,
        resource=MULTI.resource,
        share=f"{of.id}-uid1.{number}",
        cards=(of.id,),
        slots=1,
        char_paths=(),
    )


ONE, OTHER = share(FIRST, 0), share(SECOND, 1)
BOOKED = (PreparedClaim(CLAIM, (ONE, OTHER), (), "b00t", 7.0),)


def holds(container, *shares, pod=POD):
    return Holding(pod.namespace, pod.name, container, MULTI.resource, tuple(shares))


def pod(*holdings, edits=None, sandbox=SANDBOX, **annotations):
    return ClaimingSandbox(sandbox, holdings, annotations, edits or {})


def pools():
    made, _ = resolve((MULTI,), (FIRST, SECOND), node().survey)
    return {one.spec.resource: one for one in made}


async def told(folder, asked, name="main"):
    """What a container of the pod reads in nccl.conf, None without one."""
    await ClaimSettings(PodSettings(folder)).write(asked, BOOKED, pools())
    path = folder / asked.sandbox.container / name / "nccl.conf"
    return path.read_text() if path.exists() else None


async def test_each_container_is_told_of_its_own_devices(tmp_path):
    asked = pod(holds("main", ONE.share), holds("side", OTHER.share))
    names = [one.devices[0].name for one in (FIRST, SECOND)]
    assert f"NCCL_IB_HCA=={names[0]}:1\n" in await told(tmp_path, asked)
    assert f"NCCL_IB_HCA=={names[1]}:1\n" in await told(tmp_path, asked, "side")


async def test_shares_of_the_device_plugin_are_told_besides(tmp_path):
    """One list has all of a container: NCCL takes one."""
    plugin = next(one.id for one in pools()[MULTI.resource].shares if one.card == SECOND.id)
    text = await told(tmp_path, pod(holds("main", ONE.share), holds("main", plugin)))
    for card in (FIRST, SECOND):
        assert f"{card.devices[0].name}:1" in text


async def test_what_the_network_made_counts(tmp_path):
    made = {(MULTI.resource, ONE.share): Edits(used=(UsedDevice("rxe9", 1, "net1", gid_index=3),))}
    text = await told(tmp_path, pod(holds("main", ONE.share), edits=made))
    assert "NCCL_IB_HCA==rxe9:1\n" in text
    assert "NCCL_IB_GID_INDEX=3\n" in text


async def test_two_pods_of_one_claim_are_told_apart(tmp_path):
    """Each sandbox has its own, and the end of one leaves the other."""
    second = replace(SANDBOX, container="s2", pod=PodName("team", "job-1"))
    of_second = holds("main", ONE.share, pod=second.pod)
    await told(tmp_path, pod(holds("main", ONE.share), of_second))
    assert await told(tmp_path, pod(of_second, sandbox=second))
    settings = ClaimSettings(PodSettings(tmp_path))
    await settings.remove(SANDBOX.container)
    assert [path.name for path in tmp_path.iterdir()] == ["s2"]
    await settings.remove()
    assert not tmp_path.exists()


async def test_a_disk_that_fails_holds_up_no_pod(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    await ClaimSettings(PodSettings(blocked)).write(pod(holds("main", ONE.share)), BOOKED, pools())
