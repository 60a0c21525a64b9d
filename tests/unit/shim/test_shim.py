"""The shim, compiled and fake alike: with an agent, without one, with one that talks nonsense."""

import asyncio
import os
import re
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kube_base.errors import Refused
from kube_rdma.adapters.cni import protocol
from kube_rdma.adapters.cni.shim_files import MissedDeletes
from kube_rdma.attach.rules.conflist import ENTRY
from kube_rdma.model.attach.cni import CniAttachment, CniInterface, CniResult, Verb
from kube_rdma.model.late_binding import PodName
from kube_rdma_testing.cni.shim import FakeShim
from tests.unit.shim.calls import NETNS, PREVIOUS, asking, environment, serving, text

OWN_NETNS = Path(NETNS).stat().st_ino


@asynccontextmanager
async def talking(root, reply, *, wait=True):
    """An agent that answers every request with just these bytes and hangs up."""

    async def serve(reader, writer):
        if wait:
            head = protocol.request_head(await reader.readexactly(protocol.REQUEST_HEADER))
            await reader.readexactly(head.environment + head.input)
        writer.write(reply)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, root / "run/kube-rdma/agent.sock")
    async with server:
        yield


def missed(root):
    return MissedDeletes(root / "run/kube-rdma/missed")


async def test_the_call_arrives_and_the_answer_comes_back(shim, root):
    """Environment, configuration and namespace reach the agent, its result reaches stdout."""
    calls = []

    async def handler(call):
        calls.append((call, os.fstat(call.netns).st_ino))
        return CniResult((CniInterface("net1"),))

    async with serving(root, handler):
        done = await shim.run(environment(HTTP_PROXY="x"), text())
    ((call, inode),) = calls
    assert (done.code, done.err) == (0, b"")
    assert [one["name"] for one in done.document["interfaces"]] == ["eth0", "net1"]
    assert (call.verb, call.pod, call.uid) == (Verb.ADD, PodName("default", "a"), "u")
    assert call.config == text()
    assert inode == OWN_NETNS


async def test_only_variables_of_cni_are_handed_over(shim, root):
    """The runtime's own environment stays with the runtime."""
    seen = []

    async def serve(reader, writer):
        head = protocol.request_head(await reader.readexactly(protocol.REQUEST_HEADER))
        seen.append(await reader.readexactly(head.environment))
        await reader.readexactly(head.input)
        writer.write(protocol.answer(0, b""))
        writer.close()

    server = await asyncio.start_unix_server(serve, root / "run/kube-rdma/agent.sock")
    async with server:
        await shim.run(environment(HTTP_PROXY="y"), text())
    names = {entry.split(b"=")[0] for entry in seen[0].split(b"\0") if entry}
    assert names == {name.encode() for name in environment()}


async def test_a_refusal_is_an_error_of_cni(shim, root):
    """What the agent refuses is an error with a code, sentence and remedy, and exit code 1."""

    async def handler(call):
        raise Refused("no card is free", remedy="Delete a pod", where="rail0")

    async with serving(root, handler):
        done = await shim.run(environment(), text())
    assert done.code == 1
    assert done.document == {
        "cniVersion": "1.0.0",
        "code": 7,
        "msg": "rail0: no card is free",
        "details": "Delete a pod.",
    }


async def test_version_needs_no_agent(shim):
    """VERSION is answered in the version of the question."""
    done = await shim.run({"CNI_COMMAND": "VERSION"}, b'{"cniVersion":"0.4.0"}')
    assert done.code == 0
    assert done.document == {
        "cniVersion": "0.4.0",
        "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
    }


async def test_a_pod_that_asks_waits_for_the_agent(shim, root):
    """Without an agent the ADD of a pod that asks fails with try-again, and says why."""
    asking(root).keep(frozenset({PodName("default", "a")}))
    done = await shim.run(environment(), text(cniVersion="1.1.0"))
    assert (done.code, done.document["code"], done.document["cniVersion"]) == (1, 11, "1.1.0")
    assert "does not answer on /run/kube-rdma/agent.sock" in done.document["msg"]


async def test_a_pod_that_asks_for_nothing_is_not_held_up(shim, root):
    """Without an agent another pod's ADD passes the previous result on, every field of it."""
    asking(root).keep(frozenset({PodName("default", "b"), PodName("other", "a")}))
    done = await shim.run(environment(), text())
    assert done.code == 0
    assert done.document == PREVIOUS


@pytest.mark.parametrize(
    "config", [b'{"cniVersion":"1.0.0"}', text(prevResult=None), text(type="macvlan")]
)
async def test_who_calls_by_name_waits_for_the_agent(shim, config):
    """Without a previous result, or for addresses, somebody asked for us: the ADD fails."""
    done = await shim.run(environment(), config)
    assert (done.code, done.document["code"]) == (1, 11)


@pytest.mark.parametrize("config", [b"", b"{", b"[]", b'{"prevResult"', b'"x"', b'{"a":"\\'])
async def test_nonsense_without_an_agent_is_an_error(shim, config):
    """A configuration that is none never passes as a result."""
    done = await shim.run(environment(), config)
    assert (done.code, done.document["code"]) == (1, 11)


async def test_a_delete_is_remembered(shim, root):
    """Without an agent DEL succeeds and leaves a note, once, whatever its interface is called."""
    for _ in range(2):
        done = await shim.run(environment("DEL", CNI_IFNAME="eth0.7@x"), text())
        assert (done.code, done.out) == (0, b"")
    assert missed(root).present() == (CniAttachment("c0ffee", "eth0.7@x"),)
    missed(root).forget(CniAttachment("c0ffee", "eth0.7@x"))
    assert missed(root).present() == ()


@pytest.mark.parametrize("container", ["../x", ".x", "a/b", "", "x" * 129])
async def test_no_note_leaves_its_folder(shim, root, container):
    """A container id that could be a path is not written anywhere, and DEL still succeeds."""
    before = sorted(root.rglob("*"))
    done = await shim.run(environment("DEL", CNI_CONTAINERID=container), text())
    assert done.code == 0
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize(
    ("verb", "code", "facts"),
    [
        ("STATUS", 50, {}),
        ("STATUS", 50, {**ENTRY, "type": "macvlan"}),
        ("CHECK", 11, ENTRY),
        ("OTHER", 11, ENTRY),
    ],
)
async def test_other_verbs_fail_without_an_agent(shim, verb, code, facts):
    """STATUS tells who called us by name that no ADD can succeed, CHECK that it cannot look."""
    done = await shim.run(environment(verb), text(**facts))
    assert (done.code, done.document["code"]) == (1, code)


async def test_garbage_collection_can_wait(shim):
    """Without an agent GC succeeds: the agent compares when it starts."""
    done = await shim.run(environment("GC"), text())
    assert (done.code, done.out) == (0, b"")


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"kra1",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        protocol.answer(0, b'{"cniVersion"')[:-1],
        protocol.answer(0, b"")[:-4] + b"\xff\xff\xff\xff",
        protocol.answer(256, b"{}"),
    ],
)
async def test_an_agent_that_breaks_off_leaves_no_half_of_a_result(shim, root, reply):
    """Whatever comes instead of an answer, ADD fails with try-again: the agent may have begun."""
    async with talking(root, reply):
        done = await shim.run(environment(), text())
    assert (done.code, done.document["code"]) == (1, 11)
    assert "took the call and gave no answer" in done.document["msg"]


async def test_an_agent_that_is_silent_is_waited_for_only_so_long(make_shim, root):
    """When the time is over ADD fails with try-again."""
    over = asyncio.Event()

    async def handler(call):
        await over.wait()

    async with serving(root, handler):
        done = await make_shim(adds=0.2).run(environment(), text())
        over.set()
    assert (done.code, done.document["code"]) == (1, 11)


async def test_an_add_is_waited_for_longer_than_a_delete(make_shim, root):
    """The kubelet gives a sandbox four minutes to begin and two to end: a DEL is noted in time."""
    over = asyncio.Event()

    async def handler(call):
        await over.wait()
        return CniResult()

    shim = make_shim(seconds=0.2)
    async with serving(root, handler):
        adding = asyncio.create_task(shim.run(environment(), text()))
        done = await shim.run(environment("DEL"), text())
        assert (done.code, missed(root).present()) == (0, (CniAttachment("c0ffee", "eth0"),))
        over.set()
        assert (await adding).code == 0


def test_the_times_are_those_of_the_kubelet():
    """Within four minutes for ADD, within two for all else (runtimeRequestTimeout, twice)."""
    header = (Path(__file__).parents[3] / "shim/shim.h").read_text()
    adds, others = (int(ms) for ms in re.findall(r"#define (?:ADD_)?TIMEOUT_MS (\d+)", header))
    assert 180_000 < adds < 240_000
    assert others < 120_000
    assert (FakeShim(Path())._add_seconds, FakeShim(Path())._seconds) == (adds / 1e3, others / 1e3)


async def test_too_much_of_anything_is_refused(shim):
    """More than 2 MiB on stdin, more than 64 KiB of variables: an error, not a crash."""
    done = await shim.run(environment(), b" " * (protocol.MAX_INPUT + 1))
    assert (done.code, done.document["code"]) == (1, 6)
    done = await shim.run(environment(CNI_ARGS="x=" + "y" * protocol.MAX_ENVIRONMENT), text())
    assert (done.code, done.document["code"]) == (1, 4)


async def test_the_largest_call_goes_through(shim, root):
    """2 MiB of configuration are more than a socket's buffer, and arrive whole."""

    async def handler(call):
        return CniResult((CniInterface(str(len(call.config))),))

    config = text()
    config += b" " * (protocol.MAX_INPUT - len(config))
    async with serving(root, handler):
        done = await shim.run(environment(), config)
    assert done.document["interfaces"][-1]["name"] == str(protocol.MAX_INPUT)


async def test_a_namespace_that_is_none_is_refused(shim, root, tmp_path):
    """A path that is no network namespace, or leads nowhere, never reaches the handler."""

    async def handler(call):
        raise AssertionError(call)

    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    async with serving(root, handler):
        for path in ("/etc/passwd", str(fifo), "/dev/null", "/nowhere"):
            done = await shim.run(environment(CNI_NETNS=path), text())
            assert (done.code, done.document["code"]) == (1, 4)


async def test_run_by_hand_it_says_what_it_is(shim):
    """Without CNI_COMMAND it is an error of the environment."""
    done = await shim.run({}, b"")
    assert (done.code, done.document["code"]) == (1, 4)


def test_the_binary_needs_nothing_of_the_host(binary):
    """It is static: no interpreter, no library."""
    assert (
        b"INTERP"
        not in subprocess.run(
            ["readelf", "--program-headers", binary], capture_output=True, check=True
        ).stdout
    )
