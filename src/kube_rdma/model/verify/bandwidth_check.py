"""What a BandwidthCheck asks for: `kube-rdma verify` as an object, done by the controller.

verify/bandwidth_check reads the object, verify/rules/due says when it is done again,
verify/bandwidth_checks does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kube_base.frozen import Frozen
from kube_rdma.model.verify.bandwidth import Pairing, PairStandard, PerftestRun


class BandwidthPlan(Frozen):
    """What to measure and what is good enough.

    Either between running pods, which `selector` (``a=b,c=d``) chooses, or between copies of the
    pod `template`, one on each of `nodes` (all that offer its shares, if none), which may take
    `start_seconds` to become Ready. `against_last`: a pair may not be worse than it was the last
    time. `every` is in seconds between the begin of two runs; None: once. More than `most_pairs`
    are refused, and after `run_seconds` of measuring the run ends with what it has.
    """

    run: PerftestRun
    standard: PairStandard
    selector: str = ""
    template: Mapping[str, Any] | None = None
    nodes: tuple[str, ...] = ()
    start_seconds: int = 300
    pairing: Pairing = Pairing.ALL
    both_ways: bool = False
    against_last: bool = False
    every: int | None = None
    most_pairs: int = 20_000
    run_seconds: int = 21_600


class BandwidthHistory(Frozen):
    """What became of a check before: of which generation, when the last run began and ended.

    Without `ended` it was interrupted. `hindered`: it ended without a measurement, for a reason
    that somebody may have mended since; `refused`: only another generation can be better.
    """

    generation: int
    began: datetime
    ended: datetime | None
    hindered: bool = False
    refused: bool = False
