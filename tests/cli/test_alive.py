"""The liveness probe: `kube-rdma alive` asks the event loop, and nobody else."""

import asyncio

import pytest
from click.testing import CliRunner

from kube_rdma.model.errors import Unavailable
from kube_rdma.programs.alive import ask
from kube_rdma.programs.answering import answering
from kube_rdma.programs.cli.main import cli


@pytest.fixture
def door(tmp_path_factory):
    """A short path: it is a socket's."""
    return tmp_path_factory.mktemp("a") / "alive"


async def test_a_loop_that_works_answers(door):
    """As often as it is asked; the command says nothing then."""
    async with answering(door):
        for _ in range(3):
            await asyncio.to_thread(ask, door)
        result = await asyncio.to_thread(CliRunner().invoke, cli, ["alive", str(door)])
    assert (result.exit_code, result.output) == (0, "")


async def test_a_loop_that_hangs_does_not(door):
    """The kernel takes the connection for it; that is no answer."""
    async with answering(door):
        with pytest.raises(Unavailable, match=r"Nobody answers on .*alive \(timed out\)"):
            ask(door, 0.01)  # in the loop's own thread, which so cannot answer


async def test_one_that_has_ended_does_not(door):
    """Its socket is still there; the next one takes its place."""
    async with answering(door):
        pass
    with pytest.raises(Unavailable, match="Connection refused"):
        ask(door)
    async with answering(door):
        await asyncio.to_thread(ask, door)


@pytest.mark.parametrize("word", [b"", b"HTTP/1"])
async def test_who_says_something_else_is_not_ours(door, word):
    """Or nothing at all."""

    async def answer(_, writer):
        writer.write(word)
        writer.close()

    async with await asyncio.start_unix_server(answer, door):
        with pytest.raises(Unavailable, match="it hung up"):
            await asyncio.to_thread(ask, door)


async def test_without_a_path_nobody_answers(door):
    """As in a manifest without the probe."""
    async with answering(None):
        with pytest.raises(Unavailable, match="No such file"):
            ask(door)


async def test_a_socket_that_cannot_be_made_is_said(tmp_path):
    """With what to do about it."""
    with pytest.raises(Unavailable, match=r"none/alive cannot be made .* as /dev/shm is"):
        async with answering(tmp_path / "none" / "alive"):
            pass
