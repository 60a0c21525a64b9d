"""Whether this node can give addresses, told once per change."""

import asyncio
from contextlib import suppress

from kube_base.errors import Broken, Unavailable
from kube_rdma.attach.address_health import tell_trouble
from tests.unit.agent.world import until


class AddressProvider:
    """`trouble` is raised or answered; `looks` counts the questions."""

    def __init__(self):
        self.trouble, self.looks = (), 0

    async def check(self):
        self.looks += 1
        if isinstance(self.trouble, Exception):
            raise self.trouble
        return self.trouble

    async def become(self, trouble):
        """Return when it has been looked at twice."""
        self.trouble, looks = trouble, self.looks
        await until(lambda: self.looks > looks + 2)


async def test_each_change_is_told_once(recording):
    """A lapsed lease, an address that was lost, and that all is well again."""
    giver, told = AddressProvider(), []
    task = asyncio.create_task(tell_trouble(giver.check, lambda *what: told.append(what), 0.0))
    await giver.become(())
    assert told == []
    await giver.become(Unavailable("The lease has lapsed."))
    await giver.become((Broken("one is lost."), Broken("two are lost.")))
    await giver.become(())
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert told == [
        ("AddressTrouble", "The lease has lapsed.", True),
        ("AddressTrouble", "one is lost. two are lost.", True),
        ("AddressTroubleOver", "Pods get addresses on this node as they should.", False),
    ]
    assert len(recording.of("address allocation unavailable")) == 2
