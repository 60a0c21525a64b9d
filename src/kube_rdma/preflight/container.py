"""Runs in the two init containers of a pod: measures as the plan says, then waits for the verdict.

It reads two files, starts perftest, and writes a termination message. It asks no API server. What
it runs and for how long is bounded, whatever the plan says.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from kube_base.errors import Unavailable
from kube_base.frozen import Frozen, replace
from kube_rdma.adapters.runtime.settings import NCCL_ENV
from kube_rdma.model import preflight as model
from kube_rdma.model.verify import PerftestRun, PodDevice
from kube_rdma.preflight import rules
from kube_rdma.preflight.documents import read_plan, read_verdict
from kube_rdma.verify.rules.perftest import is_worth_a_try, perftest_words, reason, table
from kube_rdma.verify.rules.pods import of_script

SOFT = 400
"""The messages of 64 KiB for which the bandwidth of a soft device is measured, in place of 5,000.

5,000 is perftest's own number, 328 MB in each direction at once: a card may lose packets in one
direction only. Latencies take 1,000 messages of 2 bytes. The time of a soft device is that of the
whole program: where processors are busy, perftest's two clocks do not agree, and it prints a
bandwidth of 0 (get_clock.c: a correlation below 0.9).
"""

ROUND = rules.HEAD_START + rules.LONGEST
"""The seconds after which each pod of a gang has measured."""

_PATIENCE = 18
"""The timeout of a soft device's queue pair, as an exponent: 4.096 µs · 2^18 = 1.1 s, eight times.

With perftest's own 14, packets that wait half a second at a busy node end the run with an error
(rxe_qp_from_attr in drivers/infiniband/sw/rxe/rxe_qp.c).
"""

_LOOK = 0.2  # seconds between two looks at a file, which the kubelet replaces
_AGAIN = 0.3  # seconds between two tries to reach a server
_TRIES = 2  # of a client that reaches its server
_MOST_OUTPUT = 64 * 1024  # bytes of perftest's output
_PEER = b"remote address"  # perftest's words when the ends have exchanged their numbers
_UNREACHED = "Couldn't connect"  # perftest's words (src/perftest_communication.c)


class Ended(Frozen):
    """The end of an init container: its exit code and its termination message."""

    code: int
    message: str


class Files(Frozen):
    """The folder with the pod's plan and verdict, and sysfs, which has the rates of its cards."""

    folder: Path
    cards: Path = Path("/sys/class/infiniband")

    def line_rate(self, device: PodDevice) -> float | None:
        """Return the rate of a card's port in Gbit/s; None of a soft device, or if unknown.

        The kernel writes it as `100 Gb/sec (4X EDR)` (rate_show in
        drivers/infiniband/core/sysfs.c).
        """
        place = self.cards / device.name
        with suppress(OSError, ValueError):
            if (place / "device").exists():
                return float((place / f"ports/{device.port}/rate").read_text().split()[0])
        return None

    def plan(self) -> model.GangPlan | None:
        """Return the plan; None until the controller has written one."""
        return read_plan(self._text("plan"))

    def verdict(self) -> model.GangVerdict | None:
        """Return the verdict; None until the controller has written one."""
        return read_verdict(self._text("verdict"))

    def _text(self, name: str) -> str:
        with suppress(OSError, UnicodeDecodeError):
            return (self.folder / name).read_text()
        return ""


async def measure(
    files: Files, wait: float, seconds: float = rules.SECONDS, head_start: float = rules.HEAD_START
) -> Ended:
    """Measure as the plan says, which may take `wait` seconds to come.

    A run waits `seconds` for its peer, and perftest may then take as long. A turn that fails ends
    at the same time in all pods, so that no pod of the next turn misses its peer. Other pods may
    get their plans `head_start` seconds later. A pod whose sandbox is made anew has its verdict
    already, and measures nothing.
    """
    try:
        async with asyncio.timeout(wait):
            while not (plan := files.plan()) and not files.verdict():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)  # the kubelet replaces the file
    except TimeoutError:
        why = f"The controller planned nothing in {wait:.0f} s, so peers are missing."
        return Ended(1, f"{why} See the Events of the pod.")
    if (verdict := files.verdict()) or plan is None:
        well = verdict is None or verdict.well
        return Ended(0 if well else model.NOT_WELL, verdict.why if verdict else "")
    lines: list[str] = []
    now, window = asyncio.get_running_loop().time, rules.window(plan.runs, seconds)
    began, every = now(), await _with_gids(plan.runs)
    for turn, runs in groupby(every, key=lambda run: run.turn):
        await asyncio.sleep(began + turn * plan.slot - now())
        ends = began + head_start + (turn + 1) * window
        at_once = [
            _rail(files, [*those], ends, seconds) for _, those in groupby(runs, key=_line_of)
        ]
        lines += [line for said in await asyncio.gather(*at_once) for line in said]
    return Ended(0, "\n".join(lines)[: model.MOST_MESSAGE])


async def judged(files: Files, wait: float) -> Ended:
    """Wait for the verdict on the gang, at most `wait` seconds, and end as it says."""
    try:
        async with asyncio.timeout(wait):
            while not (verdict := files.verdict()):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)  # the kubelet replaces the file
    except TimeoutError:
        return Ended(
            1, f"The controller judged nothing in {wait:.0f} s. See the Events of the pod."
        )
    return Ended(0 if verdict.well else model.NOT_WELL, verdict.why)


async def _with_gids(runs: Sequence[model.Run]) -> Sequence[model.Run]:
    """Return runs with the GID indexes of this container where the plan knows none.

    Such a pod has no interface of kube-rdma. nccl_env.sh finds the index for the ports of the
    highest rate, which perftest chooses by itself for others.
    """
    if all(run.device.gid_index is not None for run in runs):
        return runs
    script = ("sh", str(NCCL_ENV), "--format", "json")
    process = await asyncio.create_subprocess_exec(*script, stdout=asyncio.subprocess.PIPE)
    answer, _ = await process.communicate()
    every = of_script(answer.decode(errors="replace"))
    found = {(one.name, one.port): one.gid_index for one in every}
    own = [found.get((run.device.name, run.device.port)) for run in runs]
    return [
        run
        if run.device.gid_index is not None
        else replace(run, device=replace(run.device, gid_index=index))
        for run, index in zip(runs, own, strict=True)
    ]


def _line_of(run: model.Run) -> tuple[int, str]:
    return run.rail, run.peer


async def _rail(files: Files, runs: Sequence[model.Run], ends: float, seconds: float) -> list[str]:
    """Measure with one peer on one rail until `ends`; return the results of a client.

    The bandwidth is first. Each run has its part of the time that is left.
    """
    lines, now = [], asyncio.get_running_loop().time
    for number, run in enumerate(runs):
        until = now() + (ends - now()) / (len(runs) - number)
        rate = files.line_rate(run.device)
        if run.client:
            result = await _client(run, rate, until - seconds, seconds)
            lines.append(rules.result_line(run, result))
        else:
            await _server(run, rate, until, seconds)
    return lines


async def _server(run: model.Run, rate: float | None, until: float, seconds: float) -> None:
    """Serve a client well, or for about as long as it tries: once more if it fails early.

    A stranger who connects, and says nothing of a queue pair, is followed by the client. Whoever
    has failed is awaited for `seconds` at most: a client tries again at once, or not at all.
    """
    now, failed = asyncio.get_running_loop().time, 0
    while (left := until - now()) > 0 and failed < _TRIES:
        # perftest waits for ever for a stranger who connected and says nothing: it is begun anew.
        code, _, served = await _perftest(run, rate, left, seconds, seconds / 2)
        if code == 0 or served > seconds / 2:
            return
        if served:
            failed, until = failed + 1, min(until, now() + seconds)
        await asyncio.sleep(_AGAIN)


async def _client(run: model.Run, rate: float | None, until: float, seconds: float) -> rules.Result:
    """Return what a client measures; try until its server is up, and once more if that may help."""
    again, now = True, asyncio.get_running_loop().time
    while True:
        began = now()
        code, text, _ = await _perftest(run, rate, seconds, seconds)
        took, is_late = now() - began, now() > until
        if code == 0:
            try:
                row = table(text)[-1]
            except Unavailable as error:
                text = str(error)
            else:
                if run.latency:
                    return rules.Result(row.figure)
                soft = row.size * row.iterations * 8e-9 / took
                if gbps := row.figure / 2 if rate else soft:  # in each direction
                    return rules.Result(gbps, rate)
                text = "Can't produce a report: it prints 0 Gb/s"
        if is_late or not (_UNREACHED in text or (again and is_worth_a_try(text))):
            return rules.Result(why=reason(text)[-rules.MOST_RESULT :])
        if _UNREACHED not in text:  # its server may wait for it in vain, and then be done with it
            again, until = False, min(until, now() + seconds / 2)
        await asyncio.sleep(_AGAIN)


async def _perftest(
    run: model.Run, rate: float | None, left: float, seconds: float, alone: float = math.inf
) -> tuple[int, str, float]:
    """Run perftest; return its exit code, its output, and for how long it had a peer.

    It ends after `left` seconds, after `alone` seconds without a peer, or `seconds` after its peer
    came: a server does not see that its client ends.
    """
    words = [*perftest_words(PerftestRun(latency=run.latency), run.device, run.port)]
    words = ["stdbuf", "-oL", *words]  # which says at once when the peer has come
    words += ["-u", str(_PATIENCE)] if rate is None else []
    if not run.latency:
        words += ["-b", *(("-n", str(SOFT)) if rate is None else ())]
    if run.client:
        words.append(run.peer)
    now = asyncio.get_running_loop().time
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        return 1, f"{words[0]} cannot be started: {error.strerror}", 0.0
    assert process.stdout
    text, since, ends = b"", math.inf, now() + left
    try:
        async with asyncio.timeout(min(left, alone)) as limit:
            while more := await process.stdout.read(_MOST_OUTPUT):
                text = (text + more)[-_MOST_OUTPUT:]
                if math.isinf(since) and _PEER in text:
                    since = now()
                    limit.reschedule(min(ends, since + seconds))
            code = await process.wait()
    except TimeoutError:
        code, text = 1, f"it took longer than {seconds:.0f} s".encode()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
    return code, text.decode(errors="replace"), max(0.0, now() - since)
