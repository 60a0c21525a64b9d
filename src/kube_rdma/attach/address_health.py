"""Tells people when this node can give no addresses, and when it can again.

Part of attach/node_networks. CNI has STATUS for such news, but an error there
makes a node NotReady, pods that ask for no network included; so they are an Event of the node, and
in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from kube_base.errors import Broken, KubeError
from kube_base.notices import Notices

log = structlog.get_logger()


async def tell_trouble(
    check: Callable[[], Awaitable[Sequence[Broken]]],
    tell: Callable[[str, str, bool], None],
    seconds: float,
) -> None:
    """Ask `check` every so many seconds, until cancelled, and tell each change once.

    The first time after a while: a node that starts has no right to give addresses yet.
    """
    notices = Notices()
    while True:
        await asyncio.sleep(seconds)
        why = await _why(check)
        for trouble in notices.news("addresses", why) if why else ():
            log.warning("address allocation unavailable", why=trouble)
            tell("AddressTrouble", trouble, True)
        if not why and notices.over("addresses"):
            log.info("address allocation restored")
            tell("AddressTroubleOver", "Pods get addresses on this node as they should.", False)


async def _why(check: Callable[[], Awaitable[Sequence[Broken]]]) -> str:
    try:
        return " ".join(map(str, await check()))
    except KubeError as error:
        return str(error)
