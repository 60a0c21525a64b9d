"""Measures how near to its GPU each pod's card is, for the requests that are tried on a board.

Third step of a measurement, between the allocator and the page. Pods of one template come to an
empty node until one finds no devices. What counts is where GPUs and cards are by the tree, not what
their drivers publish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from kube_base.frozen import Frozen
from kube_rdma.claims.templates import ClaimOptions, Reach
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab.ghost.claim_driver import DRIVER as GPU_DRIVER
from kube_rdma_tools.allocator import Result
from kube_rdma_tools.boards.allocator import BoardAllocator, of_driver
from kube_rdma_tools.boards.board import Board, BoardPosition, CardPool, GpuDriver


class NearCards(Frozen):
    """The numbers of pods' GPUs whose card is at the same PCIe root, NUMA node, or elsewhere."""

    root: int = 0
    numa_node: int = 0
    elsewhere: int = 0

    @property
    def gpus(self) -> int:
        """Return the number of GPUs in all three places."""
        return self.root + self.numa_node + self.elsewhere


class Request(Frozen):
    """A request for devices: the options of `kube-rdma claim`, as text and parsed."""

    words: str
    options: ClaimOptions

    @property
    def cards(self) -> int:
        """Return the number of cards that one pod asks for."""
        return self.options.cards or (self.options.gpus if self.options.reach else 1)


class Row(Frozen):
    """The result of one request on a board: how many pods fit, and where their cards are."""

    request: Request
    pods: int
    near: NearCards


def rows(allocator: BoardAllocator, board: Board, driver: GpuDriver) -> Iterator[Row]:
    """Yield the result of the best request on a board for each number of GPUs of a pod."""
    for gpus in pod_sizes(len(board.gpus)):
        requests = _near_requests(gpus)
        if gpus == len(board.gpus):
            requests.insert(0, _request(gpus, gpus, near=False))
        tried: list[Row] = []
        for request in requests:
            if any(row.near.root == len(board.gpus) for row in tried):
                break  # none is better than a card at the root of each GPU
            tried.append(_measured(allocator, board, driver, request))
        yield max(tried, key=_worth)


def pod_sizes(gpus: int) -> list[int]:
    """Return the numbers of GPUs for pods: all of a node, and its repeated halves down to one."""
    return sorted({gpus >> half for half in range(gpus.bit_length())})


def nearness(gpus: Sequence[BoardPosition], cards: Sequence[BoardPosition]) -> NearCards:
    """Count a pod's GPUs by where the card is that serves each: same root, NUMA node, elsewhere.

    A card serves at most its equal part of the GPUs, rounded up.
    """
    if not cards:
        return NearCards()
    most = -(-len(gpus) // len(cards))
    free = Counter({place: count * most for place, count in Counter(cards).items()})
    left, at_root = _matched(gpus, free, lambda place: place.root)
    placed = [gpu for gpu in left if gpu.numa_node is not None]
    _, of_node = _matched(placed, free, lambda place: place.numa_node)
    return NearCards(at_root, of_node, len(left) - of_node)


def _matched(
    gpus: Iterable[BoardPosition],
    free: Counter[BoardPosition],
    part: Callable[[BoardPosition], object],
) -> tuple[list[BoardPosition], int]:
    """Match GPUs to free cards of an equal `part`; return unmatched GPUs and a count of matches."""
    left, matched = [], 0
    for gpu in gpus:
        card = next((one for one in free if free[one] and part(one) == part(gpu)), None)
        if card is None:
            left.append(gpu)
        else:
            free[card] -= 1
            matched += 1
    return left, matched


def _near_requests(gpus: int) -> list[Request]:
    """Return the requests for near cards: as many as GPUs, then fewer, then both as shares."""
    cards = [number for number in range(gpus, 0, -1) if gpus % number == 0]
    return [
        _request(gpus, number, near=True, shared=shared)
        for shared in (False, True)
        for number in cards
    ]


def _request(gpus: int, cards: int, *, near: bool, shared: bool = False) -> Request:
    """Return a request with the fewest options of `kube-rdma claim` that express it."""
    words = [f"--gpus {gpus}"]
    default = gpus if near else 1
    if cards != default:
        words.append(f"--cards {cards}")
    words += ["--near"] * near + ["--shared"] * shared
    reach = Reach.ANY if near else None
    return Request(
        " ".join(words), ClaimOptions(gpus=gpus, cards=cards, reach=reach, shared=shared)
    )


def _worth(row: Row) -> tuple[int, int, int, bool, int, bool]:
    """Return the sort key of a row; the highest key is the best.

    Most GPUs in pods come first, then most near ones, whole cards, and more cards. A pod that takes
    the whole node needs no nearness, whose search takes longer.
    """
    near, options = row.near, row.request.options
    places = near.root, near.numa_node
    return near.gpus, *places, not options.shared, row.request.cards, options.reach is None


def _measured(allocator: BoardAllocator, board: Board, driver: GpuDriver, request: Request) -> Row:
    pool = CardPool.SHARED if request.options.shared else CardPool.WHOLE
    got = allocator.fill(board.slices[pool, driver], request.options, _most(board, request))
    pods = [_nearness_of(board, results) for results in got]
    near = NearCards(
        sum(one.root for one in pods),
        sum(one.numa_node for one in pods),
        sum(one.elsewhere for one in pods),
    )
    return Row(request, len(pods), near)


def _most(board: Board, request: Request) -> int:
    """Return for how many pods the board has devices, to avoid a long search that must fail.

    Two shares of one claim come from two cards.
    """
    if request.cards > len(board.cards):
        return 0
    most = len(board.gpus) // request.options.gpus
    return most if request.options.shared else min(most, len(board.cards) // request.cards)


def _nearness_of(board: Board, results: Sequence[Result]) -> NearCards:
    gpus = [board.places[one] for one in of_driver(results, GPU_DRIVER)]
    return nearness(gpus, [board.places[one] for one in of_driver(results, DRIVER)])
