"""The API server at an address of the host: every byte arrives, each direction ends by itself."""

import asyncio
import contextlib

import pytest

from kube_rdma_lab import relay


@contextlib.asynccontextmanager
async def relayed(serve):
    """The address of a relay that leads to a server which treats each connection with `serve`."""
    served = []

    def accept(reader, writer):
        served.append(asyncio.ensure_future(serve(reader, writer)))

    async with await asyncio.start_server(accept, relay.HOST, 0) as server:
        target = server.sockets[0].getsockname()
        with relay.listen() as listening:
            async with relay.relaying(listening, target):
                yield listening.getsockname()
        await asyncio.gather(*served)


async def echo_upper(reader, writer):
    """Answer with everything in capitals, once all of it was heard."""
    writer.write((await reader.read()).upper())
    await end(writer)


async def end(writer):
    """Close a connection and wait until it is."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_client_may_end_its_half_and_still_hear_the_answer():
    """Megabytes, so that no single read or write carries them."""
    sent = b"exec upgrade " * 200_000
    async with relayed(echo_upper) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent.upper()
        await end(writer)


async def test_connections_are_carried_side_by_side():
    """One that waits for its client holds no other one up."""
    async with relayed(echo_upper) as address:
        _, waits = await asyncio.open_connection(*address)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"second")
        writer.write_eof()
        assert await reader.read() == b"SECOND"
        await end(writer)
        await end(waits)


async def test_nothing_behind_the_relay_closes_the_connection():
    """As while the API server restarts: the client hears an end and comes again."""
    with relay.listen() as gone:
        nobody = gone.getsockname()
    with relay.listen() as listening:
        async with relay.relaying(listening, nobody):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            assert await reader.read() == b""
            await end(writer)


async def test_the_scope_ends_what_is_still_open():
    """A watch has no end of its own."""
    async with relayed(echo_upper) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"a watch")
        await writer.drain()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    await end(writer)
