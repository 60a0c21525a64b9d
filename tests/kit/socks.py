"""A SOCKS5 proxy that is as strict as RFC 1928 and RFC 1929 have it."""

import asyncio
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

_VERSION, _ANYBODY, _BY_PASSWORD, _NOBODY = 5, 0, 2, 0xFF
_CONNECT, _BY_NAME = 1, 3
_LENGTHS = {1: 4, 4: 16}  # of addresses
OK, UNREACHABLE, NO_COMMAND, NO_ADDRESS = 0, 4, 7, 8


class SocksProxy:
    """Joins to `targets`, ports of this machine by the name or address that is asked for.

    With a `login` it takes that name and password alone. `asked` has what was asked for, `refused`
    the reasons of this side.
    """

    def __init__(self, targets, login=None):
        self.targets, self.login = targets, login
        self.asked, self.refused = [], []
        self._calls = []

    @asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]
            await asyncio.gather(*self._calls)

    async def _serve(self, reader, writer):
        self._calls.append(asyncio.current_task())
        try:
            target = await self._agreed(reader, writer)
            if target:
                far = await asyncio.open_connection("127.0.0.1", target)
                writer.write(_reply(OK))
                await asyncio.gather(_relay(reader, far[1]), _relay(far[0], writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.refused.append("it was cut short")
        await _closed(writer)

    async def _agreed(self, reader, writer):
        """The port that the client may have, None where it is refused."""
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        way = _BY_PASSWORD if self.login else _ANYBODY
        if version != _VERSION or way not in methods:
            return self._refuse(writer, bytes([_VERSION, _NOBODY]), "no method that is accepted")
        writer.write(bytes([_VERSION, way]))
        if self.login and not await self._known(reader, writer):
            return None
        version, command, reserved, kind = await reader.readexactly(4)
        if (version, command, reserved) != (_VERSION, _CONNECT, 0):
            return self._refuse(writer, _reply(NO_COMMAND), "no CONNECT")
        if kind == _BY_NAME:
            (length,) = await reader.readexactly(1)
            host = (await reader.readexactly(length)).decode()
        elif kind in _LENGTHS:
            host = str(ip_address(await reader.readexactly(_LENGTHS[kind])))
        else:
            return self._refuse(writer, _reply(NO_ADDRESS), "no address")
        asked = (host, int.from_bytes(await reader.readexactly(2)))
        self.asked.append(asked)
        if host not in self.targets:
            return self._refuse(writer, _reply(UNREACHABLE), "no such host")
        return self.targets[host]

    async def _known(self, reader, writer):
        version, length = await reader.readexactly(2)
        name = await reader.readexactly(length)
        (length,) = await reader.readexactly(1)
        password = await reader.readexactly(length)
        is_known = version == 1 and (name.decode(), password.decode()) == self.login
        writer.write(bytes([1, not is_known]))
        if not is_known:
            self.refused.append("another login")
        return is_known

    def _refuse(self, writer, answer, why):
        writer.write(answer)
        self.refused.append(why)


def _reply(code):
    return bytes([_VERSION, code, 0, 1]) + bytes(6)


async def _relay(reader, writer):
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    await _closed(writer)


async def _closed(writer):
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
