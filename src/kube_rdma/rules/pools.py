"""Meets the wish for a pool with what the node has: which cards, which shares, how they are.

Between rules/discovery, whose verdicts it takes, and adapters/kubelet, which offers the Pool. The
same wish and the same Survey make the same Pool, so a program may call it whenever something
changed and compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kube_rdma.model.device import CharKind
from kube_rdma.model.pool import Bind, Pool, PoolSpec, Share, ShareId
from kube_rdma.model.survey import Survey, Verdict
from kube_rdma.rules.modes import MODES, ModeRow


def resolve(spec: PoolSpec, verdicts: Sequence[Verdict], survey: Survey) -> Pool:
    """The pool that `spec` asks for on the node of `survey`, whose devices `verdicts` judges.

    Every card belongs to it, also one whose port is down at the moment: a container lives longer
    than most link failures and gets its device nodes only once. A share is healthy as long as one
    card is usable. A node without any card has no shares at all, as with the plugin of v0.1.0:
    zero tells the scheduler and a person more than a thousand that are unhealthy.
    """
    row = MODES[spec.mode]
    assert row.bind is Bind.POOL, "no mode binds a share to one card yet"
    healthy = any(verdict.usable for verdict in verdicts)
    count = row.shares if verdicts else 0
    return Pool(
        spec=spec,
        resource=row.resource,
        shares=tuple(Share(ShareId(f"{spec.mode}-{n}"), healthy) for n in range(count)),
        devices=tuple(verdict.device.name for verdict in verdicts),
        char_paths=tuple(sorted(set(_doors(row, verdicts, survey)))),
        unusable=tuple(verdict for verdict in verdicts if not verdict.usable),
    )


def _doors(row: ModeRow, verdicts: Sequence[Verdict], survey: Survey) -> Iterator[str]:
    """Paths of the character devices that the mode gives; rdma_cm only where cards are."""
    for verdict in verdicts:
        yield from (c.path for c in verdict.device.char_devices if c.kind in row.gives)
    if verdicts and survey.rdma_cm and CharKind.RDMA_CM in row.gives:
        yield survey.rdma_cm.path
