"""Files of KEP-5304: a container finds what its claim is, and what its network made of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.runtime.settings import ClaimFiles
from kube_rdma.claims.prepared_claims import ClaimMetadata
from kube_rdma.claims.rules.prepare import FOLDER
from kube_rdma.model.claims.claim import PodClaims
from kube_rdma.model.pools import Mode
from kube_rdma_testing.runtime.cdi import FakeCdiRuntime
from tests.unit.attach.network_world import POD, card
from tests.unit.claims.test_attached import CLAIM, booking, pool_of
from tests.unit.claims.test_claim_statuses import interface

DEVICE = "0000-10-00-1"
SHOWN = {DEVICE: {"rail": {"int": 3}}}
DIRECT = f"{FOLDER}/resourceclaims/{CLAIM.name}/nic/rdma.kube-rdma.io-metadata.json"
MADE = f"{FOLDER}/resourceclaimtemplates/nic/nic/rdma.kube-rdma.io-metadata.json"


def claims_of(folder, **facts):
    made = ClaimMetadata(ClaimFiles(folder / "metadata"), lambda: SHOWN)
    pool = pool_of(card(0), Mode.SHARED_MULTI)
    claims = booking(folder, pool, metadata=made, **facts)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    return claims


async def seen(folder, claims, path):
    """The device in the file that a container with the claim has at this path."""
    (device,) = await claims.prepare(CLAIM)
    mounts = FakeCdiRuntime(folder / "cdi").create(*device.cdi).mounts
    (mount,) = [one for one in mounts if one.container_path == path]
    text = await asyncio.to_thread(Path(mount.host_path).read_text)
    (request,) = json.loads(text)["requests"]
    return request["devices"][0]


async def test_a_container_finds_its_device_with_what_the_slice_says(tmp_path):
    claims = claims_of(tmp_path)
    device = await seen(tmp_path, claims, DIRECT)
    assert (device["name"], device["attributes"]) == (DEVICE, SHOWN[DEVICE])
    await claims.unprepare(CLAIM)
    assert list((tmp_path / "metadata").iterdir()) == []


async def test_the_claim_of_one_pod_has_its_network_too(tmp_path):
    """The pod's name for it is in the path."""
    claims = claims_of(tmp_path, pod_claim="nic")
    await claims.prepare(CLAIM)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    await claims.attached(POD, [interface(card(0))])
    device = await seen_again(tmp_path)
    assert device["networkData"]["ips"] == ["10.0.0.5/24"]


async def seen_again(folder):
    (path,) = (folder / "metadata").glob("*/nic")
    return json.loads(path.read_text())["requests"][0]["devices"][0]


async def test_the_claim_of_several_pods_has_none(tmp_path):
    """One pod would read what another one's network made."""
    claims = claims_of(tmp_path)
    await claims.prepare(CLAIM)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    await claims.attached(POD, [interface(card(0))])
    assert "networkData" not in await seen_again(tmp_path)


async def test_a_file_that_cannot_be_changed_holds_up_no_pod(tmp_path):
    claims = claims_of(tmp_path, pod_claim="nic")
    await claims.prepare(CLAIM)
    (prepared,) = claims.booked
    blocked = tmp_path / "file"
    blocked.write_text("")
    made = ClaimMetadata(ClaimFiles(blocked), lambda: SHOWN)
    await made.attached(prepared, [interface(card(0))])
    await made.attached(replace(prepared, pod_claim=""), [])
    try:
        made.mounts(prepared)
    except Unavailable:
        return
    raise AssertionError("a CDI device would name a file that is not there")
