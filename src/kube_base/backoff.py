"""Computes the wait before another try with a server; waits for an event, up to a limit.

All nodes of a cluster may lose their kubelet or their API server at once (an upgrade). A random
share of the longest wait keeps them from coming back in step. The formula is after "Exponential
Backoff And Jitter" (AWS, 2015).
"""

from __future__ import annotations

import asyncio
import random

FIRST = 0.2  # seconds, longest wait for 0 failures; each failure doubles it
LONGEST = 30.0  # seconds, reached with eight failures


def full_jitter(failures: int) -> float:
    """Return random seconds to wait; the upper bound doubles with each of `failures`.

    The bound is FIRST for none, and LONGEST at most.
    """
    longest = min(LONGEST, FIRST * 2 ** min(failures, 16))
    return random.uniform(0, longest)  # noqa: S311  spreads load, hides nothing


def rarely(_failures: int) -> float:
    """Return 30 to 60 seconds to wait until the next try, where a person has to act first."""
    return random.uniform(LONGEST, 2 * LONGEST)  # noqa: S311  spreads load


async def has_happened(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set; return False if it is not within `seconds` (None: no limit)."""
    try:
        # Not wait_for: it can swallow a cancellation that comes with the event (Python 3.11).
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
