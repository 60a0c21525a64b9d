"""What runs beside a test."""

import asyncio
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def beside(*coroutines):
    """Run coroutines until the block ends; the task of the first; an error comes out at the end."""
    tasks = [asyncio.create_task(one) for one in coroutines]
    try:
        yield tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
