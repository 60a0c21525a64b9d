"""Starts and watches the lab's programs, all in one way.

Each program runs under the supervisor as an async context manager, writes to a log of its own
and is ended when its scope closes. Should the supervisor itself be killed, the kernel ends them:
they live in its PID namespace (docs/decisions/0004).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from kube_base.errors import Unavailable
from kube_rdma_lab.patience import Patience

STOP_SECONDS = 5.0
POLL_SECONDS = 0.05
TAIL_LINES = 12

Prepare = Callable[[], Awaitable[None]]


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, indented, for the end of an error message."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return "    (no log)"
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (empty log)"


def weigh_session() -> None:
    """Apply this process's niceness to its session, which it leads.

    Where the kernel shares processors between sessions (sched(7), autogroup), a new one weighs as
    much as any other, and niceness counts only within it.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


class Program:
    """A restartable program of the lab, made by `running`; its output is appended to `log`."""

    _process: asyncio.subprocess.Process

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        log: Path,
        prepare: Prepare,
        farewell: signal.Signals,
    ) -> None:
        self.name = name
        self.log = log
        self._farewell = farewell
        self._argv = tuple(map(str, argv))
        self._prepare = prepare
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()

    async def start(self) -> None:
        """Call `prepare`, then start the program."""
        await self._prepare()
        await self._launch()

    async def _launch(self) -> None:
        with self.log.open("ab") as sink:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink
            )

    async def restart(self, why: str) -> None:
        """Stop the program and start it again; its log notes the reason."""
        await self.stop()
        with self.log.open("a") as log:
            print(f"\n{self.name}: started anew: {why}", file=log)
        await self.start()

    async def pause(self) -> None:
        """Stop the program until `resume`; its end does not count as a loss."""
        self._is_wanted.clear()
        await self.stop()

    async def kill(self) -> None:
        """Kill the program until `resume`, as if it had crashed; it does not count as a loss."""
        self._is_wanted.clear()
        if self.running:
            self._process.kill()
            await self._process.wait()

    async def resume(self) -> None:
        """Start the program without `prepare`, unless it runs; from now on its end is a loss."""
        if not self.running:
            await self._launch()
        self._is_wanted.set()

    @property
    def pid(self) -> int:
        """Return the program's pid in this process's PID namespace."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Return whether the program's process is still running."""
        return self._process.returncode is None

    async def ended(self) -> Unavailable:
        """Wait until the program ends unasked; return an error with exit code and last output."""
        code = await self._process.wait()
        while not self._is_wanted.is_set():
            await self._is_wanted.wait()
            code = await self._process.wait()
        return Unavailable(f"{self.name} ended with code {code}; {self.log}:\n{tail(self.log)}")

    async def until(
        self, condition: Callable[[], Awaitable[bool]], patience: Patience | None = None
    ) -> None:
        """Wait for `condition`; raise Unavailable if the program ends before it holds.

        Also raise it if its log stands still for longer than `patience` allows. Without `patience`
        it waits until the condition holds or raises.
        """
        waiting = asyncio.ensure_future(self._poll(condition, patience))
        ending = asyncio.ensure_future(self.ended())
        done, pending = await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if ending in done:
            raise ending.result()
        waiting.result()

    async def _poll(
        self, condition: Callable[[], Awaitable[bool]], patience: Patience | None
    ) -> None:
        # Another program's readiness has no event that we could wait for.
        while not await condition():
            if patience and patience.lost((self.log.stat().st_size,)):
                raise Unavailable(
                    f"{self.name} is not ready and said nothing for {patience.seconds:.0f} s;"
                    f" {self.log}:\n{tail(self.log)}"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self) -> None:
        """Stop the program by its farewell signal, and kill it after STOP_SECONDS."""
        if not self.running:
            return
        self._process.send_signal(self._farewell)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def nothing() -> None:
    """Do nothing before the start of a program."""


@contextlib.asynccontextmanager
async def running(
    name: str,
    argv: Sequence[str | Path],
    log: Path,
    prepare: Prepare = nothing,
    farewell: signal.Signals = signal.SIGTERM,
) -> AsyncIterator[Program]:
    """Run a program until the scope closes; then it gets the signal `farewell`.

    `prepare` is called before `start` and `restart`, but not before `resume`.
    """
    program = Program(name, argv, log, prepare, farewell)
    await program.start()
    try:
        yield program
    finally:
        await program.stop()


async def call(argv: Sequence[str | Path], *, stdin: str = "") -> str:
    """Run a program to its end and return its output; raise Unavailable when it fails.

    If the caller is cancelled the program is ended.
    """
    process = await asyncio.create_subprocess_exec(
        *map(str, argv),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate(stdin.encode())
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        words = " ".join(map(str, argv))
        raise Unavailable(f"`{words}` failed: {errors.decode(errors='replace').strip()}")
    return output.decode()
