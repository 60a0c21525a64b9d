"""The hardware self-test for people: the plans, a table of results, and failures as sentences.

`command` prints it. Rows are made one by one, because a person waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from kube_base.frozen import replace
from kube_rdma.attach.views import describe
from kube_rdma.lib.page import (
    Block,
    Line,
    Page,
    PageRow,
    PageState,
    PageTable,
    Part,
    Sentence,
    widths,
)
from kube_rdma.model.attach.steps import TakeLink
from kube_rdma_selftest.trial import Trial, TrialResult, TrialStage, Trouble, UntriedCard

_COLUMNS = ("CARD", "PLAN", "STEPS", "RESULT", "MS")
_RIGHT = tuple(map(_COLUMNS.index, ("STEPS", "MS")))
_WORDS = (
    ("✓", PageState.HEALTHY),
    ("✗", PageState.UNHEALTHY),
    ("✗ stopped", PageState.UNHEALTHY),
    ("not tried", PageState.UNKNOWN),
)
_TWICE = (
    "Each plan is run twice and undone, then run once more and lost with its network "
    "namespace; the node is compared with what it was."
)
_LEFT = (
    "Not everything could be given back: see above, and look at `ip link` and `rdma link` "
    "before a pod uses this card."
)
_REPORT = (
    "Please report the paragraph below with what `kube-rdma devices --record DIR` writes, "
    "and the kernel's last messages (`dmesg`)."
)
_NONE = "-"
_WIDEST = ("", "", "", "✗ stopped", "99999.9")
_WHEN = {
    TrialStage.ATTACH: "when it was attached",
    TrialStage.REPEAT: "when it was attached again",
    TrialStage.UNDO: "when it was undone",
    TrialStage.END: "after its namespace had ended",
}

Attempt = Trial | UntriedCard


def dry_run(tried: Sequence[Attempt]) -> Page:
    """Return the page of plans with their steps, cards left out, and a warning if links move."""
    cards = [list(of_card) for _, of_card in groupby(tried, key=lambda attempt: attempt.card.id)]
    blocks: list[Block] = [
        (Line(_title(group[0])), *chain.from_iterable(map(_shown, group))) for group in cards
    ]
    if any(isinstance(attempt, Trial) for attempt in tried):
        blocks.append((Sentence(_TWICE),))
    elif blocks:
        blocks[-1] += (Line(""),)
    intro = Sentence("Nothing is touched without --yes. With it, this is done:", loose=True)
    return ((intro,), *blocks, tuple(_warning(tried)))


class Table:
    """The table of trial results, whose rows are printed one by one; `tried` sets its widths."""

    def __init__(self, tried: Sequence[Attempt]) -> None:
        rows = [_COLUMNS, _WIDEST, *(_cells(one, _NONE, _NONE) for one in tried)]
        self._table = PageTable(
            _COLUMNS,
            (),
            _RIGHT,
            stated=_COLUMNS.index("RESULT"),
            words=_WORDS,
            columns=tuple(widths(rows)),
        )

    @property
    def head(self) -> Page:
        """Return the heading of the table of results, without rows."""
        return ((self._table,),)

    def row(self, outcome: TrialResult | UntriedCard) -> Page:
        """Return the table row of one trial or untried card."""
        if isinstance(outcome, UntriedCard):
            cells = _cells(outcome, "not tried", _NONE)
        else:
            ms = _NONE if outcome.milliseconds is None else f"{outcome.milliseconds:.1f}"
            mark = "✓" if outcome.passed else "✗ stopped" if outcome.stopped else "✗"
            cells = _cells(outcome.trial, mark, ms)
        return ((replace(self._table, rows=(PageRow(cells),), headless=True),),)


def summary(outcomes: Sequence[TrialResult | UntriedCard]) -> Page:
    """Return sentences for failures and untried cards, the count of passed plans, and advice."""
    results = [outcome for outcome in outcomes if isinstance(outcome, TrialResult)]
    sentences: list[Part] = []
    for outcome in outcomes:
        if isinstance(outcome, UntriedCard):
            kind = f" · {outcome.kind}" if outcome.kind else ""
            text = f"{outcome.card.name}{kind}: not tried: {_stop(outcome.reason)}"
            sentences.append(Sentence(text, "  "))
        else:
            sentences += _troubles(outcome)
    passed = sum(outcome.passed for outcome in results)
    last: list[Part] = [Line(f"{passed} of {len(results)} plans passed.")]
    if any(trouble.left for outcome in results for trouble in outcome.troubles):
        last.append(Sentence(_LEFT))
    if any(outcome.troubles for outcome in results):
        last.append(Sentence(_REPORT))
    return (tuple(sentences), tuple(last)) if sentences else ((Line(""), *last),)


def _title(attempt: Attempt) -> str:
    card = attempt.card
    netdevs = [netdev.name for netdev in card.function.netdevs] if card.function else []
    where = [name for name in dict.fromkeys((*netdevs, card.id)) if name != card.name]
    return f"{card.name} ({', '.join(where)})" if where else card.name


def _shown(attempt: Attempt) -> Iterator[Part]:
    """Yield a plan's steps as sentences, or why it is not tried."""
    if isinstance(attempt, UntriedCard):
        kind = f"{attempt.kind}: " if attempt.kind else ""
        yield Sentence(f"  {kind}not tried: {_stop(attempt.reason)}", "    ")
        return
    yield Line(f"  {attempt.kind}, {len(attempt.plan.steps)} steps:")
    for number, step in enumerate(attempt.plan.steps, 1):
        yield Sentence(f"    {number:>2}  {describe(step)}", " " * 8, loose=True)


def _warning(tried: Sequence[Attempt]) -> Iterator[Sentence]:
    trials = [one for one in tried if isinstance(one, Trial) and one.kind.moves]
    names = list(dict.fromkeys(one.link.name for one in trials))
    if not names:
        return
    verb = "leaves" if len(names) == 1 else "leave"
    yield Sentence(
        f"Warning: {', '.join(names)} {verb} the node for a moment. Programs and "
        "pods that use it are interrupted: drain the node first.",
        state=PageState.WARNING,
    )
    takes = (step for one in trials for step in one.plan.steps if isinstance(step, TakeLink))
    addressed = list(dict.fromkeys(step.link.name for step in takes if step.addresses))
    if addressed:
        yield Sentence(
            f"{', '.join(addressed)} will have its addresses and routes again afterwards, but no "
            "routes with several next hops."
        )


def _cells(attempt: Attempt, result: str, ms: str) -> tuple[str, ...]:
    if isinstance(attempt, UntriedCard):
        return attempt.card.name, attempt.kind or _NONE, _NONE, result, ms
    return attempt.card.name, attempt.kind, str(len(attempt.plan.steps)), result, ms


def _troubles(result: TrialResult) -> Iterator[Sentence]:
    what = f"{result.trial.card.name} · {result.trial.kind}"
    for trouble in result.troubles:
        sentence = f"{what}, {_WHEN[trouble.stage]}: {_act(trouble, result.trial)}{trouble.message}"
        yield Sentence(_stop(sentence), "  ", PageState.UNHEALTHY)
    if result.stopped:
        text = f"{what}: stopped, and undone as far as it was done."
        yield Sentence(text, "  ", PageState.WARNING)


def _act(trouble: Trouble, trial: Trial) -> str:
    """Return the step or undo that a trouble is about as a prefix; empty if it is about none."""
    if trouble.act is None:
        return ""
    number = {id(step): number for number, step in enumerate(trial.plan.steps, 1)}
    place = number.get(id(trouble.act))
    step = f"step {place}, " if place else ""
    return f"{step}{describe(trouble.act)}: "


def _stop(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."
