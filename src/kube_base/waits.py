"""Waits for an event with an end: loops that look again when something changes, or in time."""

from __future__ import annotations

import asyncio


async def has_happened(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, at most so many seconds; return whether it is."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
