"""Verbs traffic of a run: one pod writes to another, while faults last and when they have ended.

    ends, pairs   which pods can write to which: pure rules over what the kernels show
    transfer      one ib_write_bw, with the device and the GID that the kernel has for an address
    Talker        writes between whoever is Ready, for as long as a run's steps go on

Two pods reach each other where they stand on the same card of two nodes, which is one rail. What a
transfer says while faults last is counted only; the audit judges those that come after.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from types import TracebackType
from typing import Self

from chaos import sites
from chaos.collect import collect
from chaos.kernel_rules import VETH, addresses_of
from chaos.schedule import Create, Way
from chaos.seen import Seen, SeenNamespace, SeenTransfer
from kube_base.errors import Unavailable
from kube_base.frozen import Frozen
from kube_rdma_lab.demo.perftest import Endpoint, in_pod, measure
from kube_rdma_lab.lab import Lab

STRAY_SECONDS = 60  # of the reference, for transfers that take two
PAUSE_SECONDS = 5.0  # between two transfers under faults: the machines have other work
TRIES = 3  # of a transfer after all faults
MOST_WORDS = 300  # of what a transfer says, in characters
# The kernel knows which device has an address; perftest, left alone, takes the node's first one. A
# table of GIDs has a thousand places, and those that are used are its first.
SCRIPT = """
for file in $(grep -lsx "$GID" /sys/class/infiniband/*/ports/1/gids/?); do
  device=${file%/ports/*}
  exec ib_write_bw -d "${device##*/}" -x "${file##*/}" "$@"
done
echo "no RDMA device has the GID $GID" >&2
exit 1
"""
# A pod on each node, on all rails of shares, from before the first step to the end.
WRITERS = tuple(Create(f"writer-{at}", node, Way.SHARE, 2) for at, node in enumerate(sites.NODES))
WRITES = ("sh", "-c", SCRIPT, "writes", "-n", "50", "-s", "4096", "-u", "18", "-F")
# A server whose client was lost has the port for as long as it may.
ALONE = 'pkill ib_write_bw; exec "$@"'


class End(Frozen):
    """An interface of a pod that is Ready: the card that it stands on, its address.

    `dialled` is the pod's address on the cluster's network. Of two interfaces in one subnet, a
    program that binds no address of its own dials by the first, and perftest's ends meet by TCP.
    """

    pod: str
    node: str
    card: str
    address: str
    dialled: str

    @property
    def gid(self) -> str:
        """The address as the kernel writes a GID that is made of it."""
        text = IPv4Address(self.address).packed.hex()
        return f"0000:0000:0000:0000:0000:ffff:{text[:4]}:{text[4:]}"


Pair = tuple[End, End]


def ends(seen: Seen) -> Iterator[End]:
    """All of them, by node."""
    ready = {pod.uid: pod for pod in seen.pods if pod.is_ready and pod.has_verbs}
    for node in seen.nodes:
        for space in node.others:
            for uid in space.pods:
                dialled = _dialled(space)
                for link in space.links:
                    addresses = addresses_of(link, seen)
                    if uid in ready and link.parent and link.is_up and addresses:
                        yield End(ready[uid].name, node.name, link.parent, addresses[0], dialled)


def _dialled(space: SeenNamespace) -> str:
    """The first address of the pair that leads to the node's bridge."""
    texts = (text for link in space.links if link.kind == VETH for text in link.addresses)
    return next(texts, "").partition("/")[0]


def pairs(seen: Seen) -> tuple[Pair, ...]:
    """Ends of one rail on two nodes, so that each end that has a partner is in one at least."""
    cards: dict[str, dict[str, list[End]]] = {}
    for end in ends(seen):
        cards.setdefault(end.card, {}).setdefault(end.node, []).append(end)
    chosen: list[Pair] = []
    for card in sorted(cards):
        for left, right in itertools.combinations(cards[card].values(), 2):
            count = max(len(left), len(right))
            twice = (itertools.islice(itertools.cycle(side), count) for side in (left, right))
            chosen += zip(*twice, strict=True)
    return tuple(chosen)


def transfer(lab: Lab, pair: Pair) -> SeenTransfer:
    """Write from the second end to the first; what came of it."""
    server, client = pair
    why = ""
    try:
        outcome = measure(
            lab, _place(lab, server), _place(lab, client), WRITES, stray=STRAY_SECONDS
        )
        if outcome.addresses != {server.address, client.address}:
            why = f"it was carried by {', '.join(sorted(outcome.addresses))}"
    except Unavailable as error:
        why = " ".join(str(error).split())[-MOST_WORDS:]
    return SeenTransfer(server.pod, client.pod, server.card, why)


def _place(lab: Lab, end: End) -> Endpoint:
    words = ("env", f"GID={end.gid}", "sh", "-c", ALONE, "alone")
    return in_pod(lab, end.pod, end.dialled, *words)


def transfers(lab: Lab, seen: Seen) -> tuple[SeenTransfer, ...]:
    """One for each pair; what fails is tried again, as a program of a user would."""
    outcomes = []
    for pair in pairs(seen):
        for _ in range(TRIES):
            outcome = transfer(lab, pair)
            if not outcome.why:
                break
        outcomes.append(outcome)
    return tuple(outcomes)


class Talker:
    """Transfers in a thread of their own, from the first step of a run to its last."""

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._say = say
        self._possible: tuple[Pair, ...] = ()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self.moved = 0
        self.tried = 0

    def __enter__(self) -> Self:
        """Begin with whoever is Ready now."""
        self._possible = pairs(collect(self._lab))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the one that is under way: it has an end of its own."""
        self._is_over.set()
        self._thread.join()

    def _talk(self) -> None:
        """Who is Ready is asked when a transfer has failed: a pod may be another, or gone."""
        for number in itertools.count():
            if self._is_over.wait(PAUSE_SECONDS):
                return
            if self._possible and self._take(self._possible[number % len(self._possible)]):
                continue
            try:
                self._possible = pairs(collect(self._lab))
            except (Unavailable, ValueError, KeyError) as error:  # it may be a fault's doing
                self._say(f"talk: nobody can be asked: {' '.join(str(error).split())[-80:]}")

    def _take(self, pair: Pair) -> bool:
        outcome = transfer(self._lab, pair)
        self.tried += 1
        self.moved += not outcome.why
        what = outcome.why[-80:] or "bytes"
        self._say(f"talk: {outcome.client} to {outcome.server} over {outcome.card}: {what}")
        return not outcome.why
