"""The agent's socket in a container of its own: refuses each call of the shim, and names it.

test_selinux starts it: what counts is who may ask, not what is answered.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kube_base.errors import Refused
from kube_rdma.adapters.cni.socket import CniSocket


async def refuse(call):
    """Answer that the call came."""
    raise Refused(f"{call.verb} of {call.container} came", remedy="Nothing to do")


async def main():
    """Serve until the end."""
    async with CniSocket(Path(sys.argv[1]), refuse) as cni:
        await cni.serve()


if __name__ == "__main__":
    asyncio.run(main())
