"""Settings of containers for the devices that they hold by claims: nccl.conf and its like.

    CNI ADD ─► shares of each container ─ attach/rules/settings ─► files ─► a folder of that
    container

Late binding does the same for shares of the device plugin (attach/binder), by the same rules. Such
a share is of one container. A claim's CDI device may be in several pods, so its files are kept by
container: the shim finds them by sandbox and name. A container starts even without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from kube_base.errors import Unavailable
from kube_base.notices import Notices
from kube_rdma.adapters.kernel.sysfs.topology_facts import facts_of
from kube_rdma.adapters.runtime.settings import PodSettings
from kube_rdma.attach.rules import settings
from kube_rdma.attach.rules.claim_networks import NOBODY
from kube_rdma.model.card import Card
from kube_rdma.model.claims.claim import PreparedClaim
from kube_rdma.model.holdings import ClaimingSandbox
from kube_rdma.model.late_binding import ContainerId, HeldShare, PodName
from kube_rdma.model.pools import Pool
from kube_rdma.model.settings import PlacedNet, TopologyFacts
from kube_rdma.pools.rules.allocation import share_cards

log = structlog.get_logger()


class ClaimSettings:
    """The writer of settings files for a node's containers that hold shares by claims."""

    def __init__(
        self,
        folder: PodSettings,
        topology: Callable[[Sequence[PlacedNet]], TopologyFacts] = facts_of,
    ) -> None:
        self._folder = folder
        self._topology = topology
        self._notices = Notices()

    @property
    def path(self) -> str:
        """Return the host's folder of settings files."""
        return str(self._folder.path)

    async def write(
        self, pod: ClaimingSandbox, booked: Iterable[PreparedClaim], pools: Mapping[str, Pool]
    ) -> None:
        """Write the settings files of a pod's containers; log a failure once."""
        claimed = {(s.resource, s.share): s.cards for claim in booked for s in claim.shares}
        try:
            for container, held in _by_container(pod).items():
                mine = [share for share in held if share in claimed]
                if mine and container != NOBODY:
                    cards = {one: _cards(one, claimed.get(one), pools) for one in held}
                    pool = pools.get(mine[0][0])
                    await asyncio.to_thread(self._write, pod, container, cards, pool)
        except Unavailable as error:
            self._notices.warn(log, "settings not given", "settings", str(error))
            return
        self._notices.over("settings")

    async def remove(self, sandbox: ContainerId | None = None) -> None:
        """Remove the settings files of a sandbox, or (None) of all sandboxes.

        Raise Unavailable if the disk fails.
        """
        await asyncio.to_thread(self._folder.remove, sandbox)

    def _write(
        self,
        pod: ClaimingSandbox,
        container: str,
        cards: Mapping[HeldShare, Sequence[Card]],
        pool: Pool | None,
    ) -> None:
        used = settings.devices_of(cards.keys(), pod.edits, cards)
        used = settings.as_asked(used, pod.annotations)
        places = tuple(device.place for device in used if device.place)
        topology = settings.topology_file(places, self._topology(places)) if places else ""
        files = settings.settings_files(used, pool.spec.fabric if pool else None, topology)
        self._folder.write(pod.sandbox.container, container, files)


def _by_container(pod: ClaimingSandbox) -> dict[str, list[HeldShare]]:
    """Return all shares of each container of the pod."""
    shares: dict[str, list[HeldShare]] = {}
    for holding in pod.holdings:
        if PodName(holding.namespace, holding.pod) == pod.sandbox.pod:
            held = shares.setdefault(holding.container, [])
            held += ((holding.resource, share) for share in holding.shares)
    return shares


def _cards(
    held: HeldShare, claimed: Sequence[str] | None, pools: Mapping[str, Pool]
) -> tuple[Card, ...]:
    """Return the present cards of a share: the `claimed` ones, or all if that is None."""
    if claimed is None:
        return share_cards(pools, held)
    pool = pools.get(held[0])
    return tuple(card for card in pool.cards if card.id in claimed) if pool else ()
