"""Three endpoints of the attach pipeline: they exclude each other, survive alike, write alike."""

import asyncio
import json
from itertools import count
from pathlib import Path

import pytest

from kube_base.errors import Unavailable
from kube_base.frozen import replace
from kube_rdma.model.attach.attachment import AttachmentKey
from kube_rdma.model.attach.cni import Verb, Wiring
from kube_rdma.model.pools import Mode
from kube_rdma_testing.kernel.network import KilledError
from tests.unit.agent.world import until
from tests.unit.attach.delegate_world import NETWORK, DelegateWorld
from tests.unit.attach.journal_script import ENDPOINTS, script
from tests.unit.attach.network_life import Halting
from tests.unit.attach.network_world import RESOURCE, card, container, share

DATA = Path(__file__).parent / "data" / "journal"


class Pod(DelegateWorld):
    """A pod whose networks come through one of the endpoints; `endpoint` says which."""

    def __init__(self, folder, endpoint):
        self.endpoint = endpoint
        super().__init__(folder, [card(0)], [share(card(0), Mode.SHARED_MULTI)], {})
        self.node.networks["default/rail"] = (RESOURCE, json.dumps(NETWORK))
        self.node.networks["default/other"] = (None, '{"cniVersion": "1.0.0", "type": "bridge"}')
        self.wiring = Wiring.CHAIN if endpoint == "chained" else Wiring.DELEGATE
        self.sandbox()
        self.ask("rail")

    @property
    def by_plugin(self):
        """The configuration with which another plugin asks for addresses."""
        (pool,) = self.node.pools
        return {"type": "macvlan", "ipam": {"type": "kube-rdma-ipam", "pool": pool}}

    async def by_endpoint(self, verb):
        if self.endpoint == "chained":
            return await self.chain(verb, 1)
        return await self.meta(verb, 1, **(self.by_plugin if self.endpoint == "addressed" else {}))


@pytest.fixture(params=ENDPOINTS)
def pods(request, tmp_path):
    """A new node for each time, whose pod comes through the endpoint."""
    folders = (tmp_path / f"w{number}" for number in count())
    return lambda: Pod(next(folders), request.param)


async def died(pod, verb, at):
    """Whether the agent dies after this act of the call."""
    pod.start(at)
    try:
        await pod.by_endpoint(verb)
    except KilledError:
        return True
    return pod.life.dead


async def test_an_add_that_was_killed_is_ended_by_recovery(pods):
    """Whichever act was the last; the DEL that comes then finds nothing to do."""
    for at in count(1):
        pod = pods()
        killed = await died(pod, "ADD", at)
        pod.start()
        if killed:
            await pod.calls.pipeline.recover()
        await pod.by_endpoint("DEL")
        pod.nothing_left(1)
        if not killed:
            break
    assert at > 5


async def test_a_del_that_was_killed_is_done_by_the_next(pods):
    """The runtime, the meta-plugin or the other plugin repeats it."""
    for at in count(1):
        pod = pods()
        await pod.by_endpoint("ADD")
        killed = await died(pod, "DEL", at)
        pod.start()
        await pod.by_endpoint("DEL")
        pod.nothing_left(1)
        if not killed:
            break
    assert at > 2


async def test_an_add_that_fails_anywhere_gives_everything_back(pods):
    """Whoever of its neighbours fails, after whatever was done."""
    for at in count(1):
        pod = pods()
        pod.start(at, Unavailable("it does not answer."))
        try:
            await pod.by_endpoint("ADD")
        except Unavailable:
            pod.nothing_left(1)
        else:
            break
    assert at > 5


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_the_journal_is_written_as_it_always_was(endpoint, tmp_path):
    """Byte for byte and in the same order, so an agent of before reads it after a roll-back."""
    lines = (DATA / f"{endpoint}.jsonl").read_text().splitlines()
    assert await script(endpoint, tmp_path) == [json.loads(line) for line in lines]


async def ended_by_a_plugin(pod):
    """Another plugin ends the addresses of an interface."""
    await pod.meta("DEL", 1, "net9", **pod.by_plugin)


async def ended_by_the_runtime(pod):
    await pod.networks.answer(pod.call(Verb.DEL, 1))


async def ended_by_a_meta_plugin(pod):
    await pod.meta("DEL", 1, "net9")


@pytest.mark.parametrize(
    ("endpoint", "end"),
    [
        ("chained", ended_by_a_plugin),
        ("delegated", ended_by_the_runtime),
        ("delegated", ended_by_a_plugin),
        ("addressed", ended_by_a_meta_plugin),
        ("addressed", ended_by_the_runtime),
    ],
)
async def test_a_del_waits_for_the_add_of_another_endpoint(endpoint, end, tmp_path):
    """Both are about one sandbox: half an ADD would be ended, and go on."""
    pod = Pod(tmp_path, endpoint)
    pod.giver = Halting(replace(pool, cooldown=0.0) for pool in pod.node.pools.values())
    pod.start()
    adding = asyncio.create_task(pod.by_endpoint("ADD"))
    await pod.giver.asked.wait()
    ending = asyncio.create_task(end(pod))
    for _ in range(200):  # turns of the loop and its threads: whoever does not wait needs fewer
        await asyncio.to_thread(int)
    waits = not ending.done()
    pod.giver.goes_on.set()
    await asyncio.gather(adding, ending)
    assert waits
    await pod.by_endpoint("DEL")
    pod.nothing_left(1)


async def test_a_plugin_that_is_run_for_a_pod_may_ask_for_addresses(tmp_path):
    """It comes back by its own endpoint while the runtime's ADD, and DEL, holds the sandbox."""
    pod = Pod(tmp_path, "chained")
    pod.ask("other,rail")
    loop, calls = asyncio.get_running_loop(), []

    def bridge(environment, text):
        verb, interface = environment["CNI_COMMAND"], environment.get("CNI_IFNAME")
        if verb != "VERSION":
            call = pod.meta(verb, 1, interface, **pod.by_plugin)
            calls.append((verb, asyncio.run_coroutine_threadsafe(call, loop).result(30)))
        return pod.veths.call(environment, text)

    pod.host.plugins["bridge"] = bridge
    await pod.by_endpoint("ADD")
    assert set(pod.attachments.keys) == {
        AttachmentKey(container(1)),
        AttachmentKey(container(1), "net1"),
    }
    assert set(pod.held) == {(container(1), "net1"), (container(1), "net2")}
    await pod.by_endpoint("DEL")
    pod.nothing_left(1)
    assert [(verb, len(result.addresses)) for verb, result in calls] == [("ADD", 1), ("DEL", 0)]


async def test_what_a_plugin_asked_for_has_ended_when_its_pod_goes_on(tmp_path):
    """A plugin that gave up waiting leaves no ADD behind that takes addresses after the end."""
    pod = Pod(tmp_path, "chained")
    pod.giver = Halting(replace(pool, cooldown=0.0) for pool in pod.node.pools.values())
    pod.start()
    pod.ask("other")
    loop, asked = asyncio.get_running_loop(), []

    def bridge(environment, text):
        if environment["CNI_COMMAND"] == "ADD":
            call = pod.meta("ADD", 1, environment["CNI_IFNAME"], **pod.by_plugin)
            asked.append(asyncio.run_coroutine_threadsafe(call, loop))
            asyncio.run_coroutine_threadsafe(pod.giver.asked.wait(), loop).result(30)
            raise Unavailable("it did not end")
        return pod.veths.call(environment, text)

    pod.host.plugins["bridge"] = bridge
    adding = asyncio.create_task(pod.by_endpoint("ADD"))
    await until(pod.giver.asked.is_set)
    for _ in range(200):
        await asyncio.to_thread(int)
    waits = not adding.done()
    pod.giver.goes_on.set()
    with pytest.raises(Unavailable, match="it did not end"):
        await adding
    assert waits
    assert not pod.held
    await pod.meta("DEL", 1, "net1", **pod.by_plugin)
    pod.nothing_left(1)
