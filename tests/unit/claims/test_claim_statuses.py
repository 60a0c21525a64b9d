"""What claims say of their devices: the newest, told beside everything that matters."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest
from structlog.testing import capture_logs

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_client.errors import Conflict, Lost
from kube_rdma.claims.prepared_claims import ClaimStatuses
from kube_rdma.model.attach.attachment import Attached, InterfaceAddress, Sandbox
from kube_rdma.model.claims.claim import ClaimName, DeviceStatus, PodClaims
from kube_rdma.model.holdings import ClaimingSandbox
from kube_rdma.model.late_binding import ContainerId, PodName
from kube_rdma.model.pools import Mode
from tests.unit.attach.network_world import POD, card
from tests.unit.claims.test_attached import CLAIM, booking, pool_of

OTHER = ClaimName("team", "other", "uid-other")
FIRST, SECOND = (
    (DeviceStatus("node-1", "card", None, (), interface=name),) for name in ("net1", "net2")
)
GONE = Conflict("it is gone", Lost.GONE)
FORBIDDEN = Refused("forbidden", remedy="Give the right", where="claims")


class Server:
    """What takes the statuses: what was written, and what it answers next."""

    def __init__(self, *answers):
        self.written, self.answers = [], list(answers)
        self.news = asyncio.Event()
        self.statuses = ClaimStatuses(self.write)

    async def write(self, claim, devices):
        if self.answers and (answer := self.answers.pop(0)):
            raise answer
        self.written.append((claim.name, devices))
        self.news.set()


async def test_the_newest_is_written_and_the_same_never_twice():
    server = Server()
    server.statuses.tell(CLAIM, FIRST)
    server.statuses.tell(CLAIM, SECOND)
    for _ in range(2):
        await server.statuses.write()
        server.statuses.tell(CLAIM, SECOND)
    await server.statuses.write()
    assert server.written == [(CLAIM.name, SECOND)]


@pytest.mark.parametrize("answer", [GONE, FORBIDDEN, AttributeError("x")])
async def test_what_cannot_be_written_holds_up_no_other_and_is_given_up(answer):
    server = Server(answer)
    server.statuses.tell(CLAIM, FIRST)
    server.statuses.tell(OTHER, FIRST)
    await server.statuses.write()
    await server.statuses.write()
    assert server.written == [(OTHER.name, FIRST)]


async def test_a_missing_right_is_told_once_for_all_claims():
    server = Server(FORBIDDEN, FORBIDDEN, FORBIDDEN)
    with capture_logs() as logs:
        for claim in (CLAIM, OTHER, replace(CLAIM, uid="third")):
            server.statuses.tell(claim, FIRST)
        await server.statuses.write()
    assert [one["event"] for one in logs] == ["status of claim not written"]


async def test_a_server_that_does_not_answer_is_asked_again():
    server = Server(Unavailable("nobody answers"), None)
    server.statuses.tell(CLAIM, FIRST)
    await server.statuses.write()
    assert server.written == []
    await server.statuses.write()
    assert server.written == [(CLAIM.name, FIRST)]


async def test_what_is_given_back_is_written_no_more():
    server = Server(Unavailable("nobody answers"))
    server.statuses.tell(CLAIM, FIRST)
    await server.statuses.write()
    server.statuses.forget(CLAIM)
    await server.statuses.write()
    assert server.written == []


async def test_the_loop_writes_what_it_is_told():
    server = Server()
    task = asyncio.create_task(server.statuses.run())
    server.statuses.tell(CLAIM, FIRST)
    await server.news.wait()
    task.cancel()
    assert server.written == [(CLAIM.name, FIRST)]


def interface(of, name="net1", address="10.0.0.5"):
    addresses = (InterfaceAddress(ip_address(address), 24),)
    return Attached("default/net", name, "02:00:00:00:00:01", 1500, addresses, card=of.id)


def settled(pod, container):
    sandbox = Sandbox(ContainerId(container), pod, "", "", 0)
    return ClaimingSandbox(sandbox, (), {}, {})


async def test_a_claim_says_what_its_pods_have_from_prepare_to_the_last_end(tmp_path):
    """Two pods of one claim; the end of one leaves the other's."""
    server, of = Server(), card(0)
    second = PodName(POD.namespace, "train-1")
    claims = booking(tmp_path, pool_of(of, Mode.SHARED_MULTI), statuses=server.statuses)

    async def said():
        await server.statuses.write()
        ((device,),) = [devices for _, devices in server.written[-1:]]
        return [(one.type, one.holds) for one in device.conditions], device.addresses

    await claims.prepare(CLAIM)
    assert await said() == ([("Ready", True), ("NetworkReady", False)], ())
    for number, pod in enumerate((POD, second)):
        claims.seen(PodClaims(pod.namespace, pod.name, f"uid-{number}", (("nic", CLAIM.name),)))
        await claims.settle(settled(pod, f"s{number}"))
        await claims.attached(pod, [interface(of, address=f"10.0.0.{number}")])
    assert await said() == ([("Ready", True), ("NetworkReady", True)], ("10.0.0.0/24",))
    await claims.detach(ContainerId("s0"))
    assert (await said())[1] == ("10.0.0.1/24",)
    await claims.detach(ContainerId("s1"))
    assert await said() == ([("Ready", True), ("NetworkReady", False)], ())


async def test_the_end_of_an_earlier_sandbox_is_not_that_of_the_pod(tmp_path):
    server, of = Server(), card(0)
    claims = booking(tmp_path, pool_of(of, Mode.SHARED_MULTI), statuses=server.statuses)
    await claims.prepare(CLAIM)
    claims.seen(PodClaims(POD.namespace, POD.name, "uid", (("nic", CLAIM.name),)))
    for container in ("earlier", "later"):
        await claims.settle(settled(POD, container))
    await claims.attached(POD, [interface(of)])
    await claims.detach(ContainerId("earlier"))
    await server.statuses.write()
    ((device,),) = [devices for _, devices in server.written[-1:]]
    assert device.interface == "net1"
