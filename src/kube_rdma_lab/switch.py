"""Ends and starts the programs of a running lab's control plane, its LLDP, and its machines.

The supervisor listens (`listening`), for these programs are its own; others ask it over a socket in
the lab's folder (`turn`). To the supervisor an end that it was asked for is no failure. backups.py
stops etcd and its readers so. `kill` is for chaos tests, and so is the `end` of a machine, which to
its kernel is a power cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from kube_base.errors import Refused, Unavailable
from kube_rdma_lab.processes import Program

Word = Literal["end", "kill", "start"]

_DONE = b"done"


def socket_path(home: Path) -> Path:
    """Return the path of the socket on which the supervisor of a lab listens."""
    return home / "switch"


@contextlib.asynccontextmanager
async def listening(home: Path, programs: Sequence[Program]) -> AsyncIterator[None]:
    """Serve requests to end, kill or start these programs, until the scope closes."""
    names = {program.name: program for program in programs}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word, _, name = (await reader.readline()).decode().strip().partition(" ")
        answer = _DONE
        if name not in names or word not in get_args(Word):
            answer = f"no program {name!r}, or no word {word!r}".encode()
        elif word == "end":
            await names[name].pause()
        elif word == "kill":
            await names[name].kill()
        else:
            await names[name].resume()
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, socket_path(home))
    async with server:
        yield


def turn(home: Path, word: Word, program: str) -> None:
    """Ask a lab's supervisor to end, kill or start a machine, or a program outside of the nodes.

    Raise Refused if there is no such program, Unavailable when no supervisor answers.
    """
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(socket_path(home)))
            asking.sendall(f"{word} {program}\n".encode())
            answer = asking.recv(1024)
    except OSError as error:
        raise Unavailable(f"the lab in {home} does not answer: {error.strerror}") from error
    if answer != _DONE:
        raise Refused(
            f"the lab cannot {word} it: {answer.decode()}",
            remedy="Name etcd, kube-apiserver, kube-controller-manager, kube-scheduler, coredns, a"
            " node that is a machine, or lldp if the topology has leaves",
        )
