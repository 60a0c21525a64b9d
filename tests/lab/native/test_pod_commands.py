"""Commands in pods through the real API server, kubelet and runtime, by both protocols of exec."""

import asyncio
import subprocess

import pytest

from kube_base.errors import Unavailable
from kube_client.pod_commands import V4, V5, PodCommands
from kube_rdma.adapters.cluster.connect import connect
from kube_rdma_lab import cluster, waiting
from tests.kit.pods import sleeping_pod

POD = "commanded"
SPACE = "default"


@pytest.fixture(scope="module")
def lab(native):
    """A pod on native nodes."""
    cluster.apply(native, sleeping_pod(POD))
    cluster.ready(native, POD)
    yield native
    cluster.kubectl(native, "delete", "pod", POD, "--ignore-not-found", "--wait=false")


@pytest.fixture(params=[(V5, V4), (V4,)], ids=["v5", "v4"])
def protocols(request):
    return request.param


def ask(lab, protocols, work):
    """Do something with the commands of a client."""

    async def asked():
        async with connect(lab.kubeconfig) as client:
            return await work(PodCommands(client, protocols))

    return asyncio.run(asked())


def run(lab, protocols, script, stdin=""):
    argv = ("sh", "-c", script)
    return ask(lab, protocols, lambda c: c.run(SPACE, POD, argv, stdin=stdin))


def test_words_and_output_travel_as_they_are(lab, protocols):
    assert run(lab, protocols, "echo 'a & b=$HOME'; echo of no interest >&2") == "a & b=$HOME\n"
    assert len(run(lab, protocols, "seq 10000")) == 48894
    with pytest.raises(Unavailable, match="prints more than"):
        run(lab, protocols, "seq 1000000")


def test_a_script_comes_by_stdin(lab, protocols):
    script = "while read -r line && [ $line != end ]; do echo got $line; done"
    assert run(lab, protocols, script, stdin="a\nb\nend\n") == "got a\ngot b\n"


def test_stdin_ends_where_the_protocol_can_say_so(lab):
    assert run(lab, (V5,), "cat; echo .", stdin="a\n") == "a\n.\n"


def test_a_failure_has_its_code_and_its_words(lab, protocols):
    with pytest.raises(Unavailable, match=r"sh in pod commanded ended with 3: no room$"):
        run(lab, protocols, "echo no room >&2; exit 3")


def test_what_is_not_there_is_said(lab, protocols):
    with pytest.raises(Unavailable, match="nothing-of-that-name"):
        ask(lab, protocols, lambda c: c.run(SPACE, POD, ("nothing-of-that-name",)))
    with pytest.raises(Unavailable, match='"absent" not found'):
        ask(lab, protocols, lambda c: c.run(SPACE, "absent", ("true",)))


def test_a_server_is_there_when_its_line_came(lab, protocols):
    async def work(commands):
        script = "echo begin; echo ready; trap '' TERM; exec sleep 30"
        async with commands.serving(SPACE, POD, ("sh", "-c", script), until="ready"):
            return await commands.run(SPACE, POD, ("pidof", "sleep"))

    assert ask(lab, protocols, work).split()


def ended(lab, mark):
    return waiting.until(lab, mark, lambda: mark in run(lab, (V5, V4), "ls /tmp; true").split())


def test_a_server_s_stdin_gets_a_line_at_the_end(lab, protocols):
    mark = f"ended-{len(protocols)}"
    argv = ("sh", "-c", f"echo ready; read -r line; touch /tmp/{mark}")

    async def work(commands):
        async with commands.serving(SPACE, POD, argv, until="ready"):
            return await commands.run(SPACE, POD, ("ls", "/tmp"))

    assert mark not in ask(lab, protocols, work).split()
    ended(lab, mark)


def test_the_stdin_of_a_command_ends_with_its_connection(lab):
    """However that ends: whoever has the connection is killed, and says nothing."""
    script = "echo ready; cat; touch /tmp/ended-lost"
    argv = lab.kubectl("-n", SPACE, "exec", "-i", POD, "--", "sh", "-c", script)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout.readline() == "ready\n"
        assert "ended-lost" not in run(lab, (V5, V4), "ls /tmp").split()
        asking.kill()
    ended(lab, "ended-lost")


def test_the_end_of_a_pod_ends_its_commands(lab, protocols):
    name = f"ended-{len(protocols)}"
    cluster.apply(lab, sleeping_pod(name, terminationGracePeriodSeconds=1))
    cluster.ready(lab, name)

    async def work(commands):
        argv = ("sh", "-c", "echo ready; exec sleep 1000")
        async with commands.serving(SPACE, name, argv, until="ready"):
            running = asyncio.create_task(commands.run(SPACE, name, ("sleep", "1000")))
            await asyncio.to_thread(cluster.kubectl, lab, "delete", "pod", name)
            await running

    with pytest.raises(Unavailable, match=f"{name}|WebSocket|connection"):
        ask(lab, protocols, work)
