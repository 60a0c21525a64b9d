"""The hardware self-test for people: what would be done, a table of what was, a sentence a failure.

programs/cli/verify prints it. Rows are made one by one, because a person waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kube_rdma.model.attach.steps import TakeLink
from kube_rdma.views.attach import describe
from kube_rdma.views.text import aligned, widths, wrapped
from kube_rdma_selftest.trial import Trial, TrialResult, TrialStage, Trouble, UntriedCard

_COLUMNS = ("CARD", "PLAN", "STEPS", "RESULT", "MS")
_RIGHT = frozenset(map(_COLUMNS.index, ("STEPS", "MS")))
_NONE = "-"
_WIDEST = ("", "", "", "✗ stopped", "99999.9")
_WHEN = {
    TrialStage.ATTACH: "when it was attached",
    TrialStage.REPEAT: "when it was attached again",
    TrialStage.UNDO: "when it was undone",
    TrialStage.END: "after its namespace had ended",
}

Tried = Trial | UntriedCard


def dry_run(tried: Sequence[Tried], width: int) -> str:
    """Every plan with its steps, what is left out and why, and whom it would interrupt."""
    lines = ["Nothing is touched without --yes. With it, this is done:", ""]
    for _, of_card in groupby(tried, key=lambda attempt: attempt.card.id):
        group = list(of_card)
        lines.append(_title(group[0]))
        for attempt in group:
            lines += (
                _left_out(attempt, width) if isinstance(attempt, UntriedCard) else _steps(attempt)
            )
        lines.append("")
    if any(isinstance(attempt, Trial) for attempt in tried):
        lines += wrapped(
            "Each plan is run twice and undone, then run once more and lost with its network "
            "namespace; the node is compared with what it was.",
            width,
            "",
        )
    lines += _warning(tried, width)
    return "\n".join(lines)


class Table:
    """The results, one line each; `tried` are all that are to come."""

    def __init__(self, tried: Sequence[Tried]) -> None:
        rows = [_COLUMNS, _WIDEST, *(_cells(one, _NONE, _NONE) for one in tried)]
        self._columns = widths(rows)

    @property
    def head(self) -> str:
        """The names of the columns."""
        return aligned(_COLUMNS, self._columns, _RIGHT)

    def row(self, outcome: TrialResult | UntriedCard) -> str:
        """What came of one plan."""
        if isinstance(outcome, UntriedCard):
            cells = _cells(outcome, "not tried", _NONE)
        else:
            ms = _NONE if outcome.milliseconds is None else f"{outcome.milliseconds:.1f}"
            mark = "✓" if outcome.passed else "✗ stopped" if outcome.stopped else "✗"
            cells = _cells(outcome.trial, mark, ms)
        return aligned(cells, self._columns, _RIGHT)


def summary(outcomes: Sequence[TrialResult | UntriedCard], width: int) -> str:
    """A sentence for each failure and each reason, how many passed, and what to report."""
    results = [outcome for outcome in outcomes if isinstance(outcome, TrialResult)]
    lines: list[str] = []
    for outcome in outcomes:
        if isinstance(outcome, UntriedCard):
            kind = f" · {outcome.kind}" if outcome.kind else ""
            lines += wrapped(
                f"{_name(outcome)}{kind}: not tried: {_stop(outcome.reason)}", width, "  "
            )
        else:
            lines += _troubles(outcome, width)
    passed = sum(outcome.passed for outcome in results)
    lines += ["", f"{passed} of {len(results)} plans passed."]
    if any(trouble.left for outcome in results for trouble in outcome.troubles):
        lines += wrapped(
            "Not everything could be given back: see above, and look at `ip link` and `rdma link` "
            "before a pod uses this card.",
            width,
            "",
        )
    if any(outcome.troubles for outcome in results):
        lines += wrapped(
            "Please report the paragraph below with what `kube-rdma devices --record DIR` writes, "
            "and the kernel's last messages (`dmesg`).",
            width,
            "",
        )
    return "\n".join(lines)


def _title(attempt: Tried) -> str:
    card = attempt.card
    netdevs = [netdev.name for netdev in card.function.netdevs] if card.function else []
    where = [name for name in dict.fromkeys((*netdevs, card.id)) if name != card.name]
    return f"{card.name} ({', '.join(where)})" if where else card.name


def _name(attempt: Tried) -> str:
    return attempt.card.name


def _steps(trial: Trial) -> Iterator[str]:
    count = len(trial.plan.steps)
    yield f"  {trial.kind}, {count} steps:"
    for number, step in enumerate(trial.plan.steps, 1):
        yield f"    {number:>2}  {describe(step)}"


def _left_out(left_out: UntriedCard, width: int) -> list[str]:
    kind = f"{left_out.kind}: " if left_out.kind else ""
    return wrapped(f"  {kind}not tried: {_stop(left_out.reason)}", width, "    ")


def _warning(tried: Sequence[Tried], width: int) -> Iterator[str]:
    trials = [one for one in tried if isinstance(one, Trial) and one.kind.moves]
    names = list(dict.fromkeys(one.link.name for one in trials))
    if not names:
        return
    yield ""
    verb = "leaves" if len(names) == 1 else "leave"
    yield from wrapped(
        f"Warning: {', '.join(names)} {verb} the node for a moment. Programs and "
        "pods that use it are interrupted: drain the node first.",
        width,
        "",
    )
    takes = (step for one in trials for step in one.plan.steps if isinstance(step, TakeLink))
    addressed = list(dict.fromkeys(step.link.name for step in takes if step.addresses))
    if addressed:
        yield from wrapped(
            f"{', '.join(addressed)} will have its addresses again afterwards, but not routes "
            "that were added by hand.",
            width,
            "",
        )


def _cells(attempt: Tried, result: str, ms: str) -> tuple[str, ...]:
    if isinstance(attempt, UntriedCard):
        return _name(attempt), attempt.kind or _NONE, _NONE, result, ms
    return _name(attempt), attempt.kind, str(len(attempt.plan.steps)), result, ms


def _troubles(result: TrialResult, width: int) -> Iterator[str]:
    what = f"{_name(result.trial)} · {result.trial.kind}"
    for trouble in result.troubles:
        sentence = f"{what}, {_WHEN[trouble.stage]}: {_act(trouble, result.trial)}{trouble.message}"
        yield from wrapped(_stop(sentence), width, "  ")
    if result.stopped:
        yield from wrapped(f"{what}: stopped, and undone as far as it was done.", width, "  ")


def _act(trouble: Trouble, trial: Trial) -> str:
    """What failed: a Step by its number, else what takes one back."""
    if trouble.act is None:
        return ""
    number = {id(step): number for number, step in enumerate(trial.plan.steps, 1)}
    place = number.get(id(trouble.act))
    step = f"step {place}, " if place else ""
    return f"{step}{describe(trouble.act)}: "


def _stop(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."
