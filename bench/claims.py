"""Cards by claims: how evenly shares spread, how long preparing takes, how soon slices tell.

Nothing here needs a lab. The allocator of the scheduler and the floor driver are programs of Go;
the API server is in memory, and the journal is on a disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import claim_prepare, claim_slices, claim_spread
from bench.checkout import in_turns
from bench.context import Context
from bench.figures import Figure, Row, attempt
from kube_rdma_lab.build.go import build_module
from kube_rdma_lab.build.store import Store
from kube_rdma_lab.paths import cache_root

GO = Path(__file__).with_name("go")
IN_TURNS = True  # but for what needs no process
ROUNDS = 3
ALLOCATOR = Path(__file__).parents[1] / "tests" / "lab" / "native"  # the folder of its module


def measure(context: Context) -> Iterator[Row]:
    """Measure each part; one that fails holds up no other."""
    # A store of its own: the lab's parts are counted and pruned without it.
    root = cache_root() / "bench"
    with Store(root) as store:
        calls, turns = context.times(claim_prepare.CALLS, 20), context.times(ROUNDS, 1)
        yield from attempt("prepare", partial(_prepare, store, root, calls, turns))
        rounds = context.times(claim_slices.ROUNDS)
        yield from attempt("slices", partial(claim_slices.measure, rounds))
        yield from attempt("spread", partial(_spread, store, short=context.short))


def _prepare(store: Store, disk: Path, calls: int, rounds: int) -> Iterator[Figure]:
    floor = build_module(store, "claims", GO) / "claims"
    yield from in_turns(partial(claim_prepare.measure, floor, disk, calls), rounds)


def _spread(store: Store, *, short: bool) -> Iterator[Figure]:
    program = build_module(store, "allocator", ALLOCATOR) / "allocator"
    yield from claim_spread.measure(program, short=short)
