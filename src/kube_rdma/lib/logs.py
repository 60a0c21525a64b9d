"""Logs one line for each thing worth knowing to standard error: time, level, event, facts.

Text is logfmt, which people read as it is; collectors may ask for JSON. Libraries that use the
standard logging (grpclib, asyncio) come out in the same form. `until_signal` runs a role of
kube-rdma as a process, until a signal ends it in order.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

# structlog imports Rich where it is installed, to draw tracebacks, and lines here are plain. What
# is None in sys.modules is not imported; an agent and a controller import this module first.
_HIDDEN = "rich" not in sys.modules and sys.modules.setdefault("rich", None) is None  # type: ignore[arg-type]
import structlog  # noqa: E402

if _HIDDEN:
    del sys.modules["rich"]

from kube_base.plain_text import plain  # noqa: E402
from kube_rdma.lib import stacks  # noqa: E402
from kube_rdma.lib.watchdog import watched  # noqa: E402

_FIRST = ["timestamp", "level", "event"]


def configure(level: str = "info", form: str = "text") -> None:
    """Send all logs of this process to standard error; call it once, before the first line.

    `level` is the least that is written, for other libraries at least warning; `form` is text or
    json.
    """
    least: int = getattr(logging, level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _plain,
    ]
    render = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.LogfmtRenderer(key_order=_FIRST, drop_missing=True)
    )
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    Formatter = structlog.stdlib.ProcessorFormatter  # noqa: N806  a class
    last = (Formatter.remove_processors_meta, render)
    handler.setFormatter(Formatter(foreign_pre_chain=shared, processors=last))
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING))
    logging.getLogger("kube_client").setLevel(least)


def _plain(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return a log event with control characters escaped, except line breaks."""
    return {
        key: value
        if isinstance(value, int | float | None)
        else "\n".join(map(plain, str(value).split("\n")))
        for key, value in event.items()
    }


# Threads for what blocks for a moment: a survey takes a while, the journal must not wait for it.
# What may take long has its own (attach/executor.py).
BLOCKING = 2

# After its start a program that stays collects garbage once for so many new objects (cli/main.py).
STARTED, GARBAGE_AFTER = 60.0, 10_000

log = structlog.get_logger()


async def until_signal(work: Coroutine[None, None, None]) -> None:
    """Run `work` until it ends or SIGTERM or SIGINT asks for its end, which is not an error."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(BLOCKING, "blocking"))
    task = asyncio.create_task(work)
    asked: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        asked.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    stacks.with_tasks(loop)
    loop.call_later(STARTED, gc.set_threshold, GARBAGE_AFTER)
    try:
        with watched():
            await task
    except asyncio.CancelledError:
        if not asked:
            raise
        log.info("stopped")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
