"""A run over given pods: all pairs, a ring or a star, then what to repeat.

It is that of `kube-rdma verify` and of a BandwidthCheck:

    pods, pairing ─► turns ─► measured (verify/pairs) ─► retries ─► measured

Who meets whom is verify/rules/neighbours, what is repeated verify/rules/retries. A run may end at
any point; what it has is in the measuring's `outcomes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kube_base.errors import Refused
from kube_rdma.model.verify.bandwidth import (
    PairedPod,
    Pairing,
    PairKey,
    PairOutcome,
    PairStandard,
)
from kube_rdma.verify.pairs import BandwidthProof, LeftOut
from kube_rdma.verify.rules.neighbours import planned, turns_of
from kube_rdma.verify.rules.retries import retries
from kube_rdma.verify.rules.verdicts import rate


class PairedRun:
    """What is measured among pods; `due` counts it, with what is repeated once that is known."""

    def __init__(self, pods: Sequence[PairedPod], pairing: Pairing, *, both_ways: bool) -> None:
        self._pods, self._pairing, self._both_ways = pods, pairing, both_ways
        self.due = planned(pairing, pods, both_ways=both_ways)

    async def measure(
        self,
        measuring: BandwidthProof,
        show: Callable[[PairOutcome], None],
        standard: PairStandard,
        before: Mapping[PairKey, float],
    ) -> None:
        """Measure; a run whose time is over repeats nothing."""
        turns = turns_of(self._pairing, self._pods, both_ways=self._both_ways)
        outcomes = await measuring.measure(turns, show)
        if self._pairing is Pairing.ALL or len(outcomes) < self.due:
            return
        again = retries(rate(outcomes, standard, before), self._pods)
        self.due += sum(map(len, again))
        await measuring.measure(again, show)


def with_centre_first(
    pods: Sequence[PairedPod], title: str, left_out: LeftOut = ()
) -> Sequence[PairedPod]:
    """The pods of a star, its centre first; Refused when that takes no part."""
    centre = [pod for pod in pods if title in (pod.title, pod.name)]
    if pods and not centre:
        why = dict(left_out).get(title, "no pod or node has that name").rstrip(".")
        raise Refused(
            f"the centre of the star takes no part: {why}",
            remedy="Name another one first, or measure a ring",
            where=title,
        )
    return [*centre, *(pod for pod in pods if pod not in centre)]
