"""The hardware self-test for people: what would be done, a table of what was, a sentence a failure.

programs/cli/verify prints it. Rows are made one by one, because a person waits for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kube_rdma.model.selftest import LeftOut, Result, Stage, Trial, Trouble
from kube_rdma.model.step import TakeLink
from kube_rdma.views.steps import describe
from kube_rdma.views.text import aligned, widths, wrapped

_COLUMNS = ("CARD", "PLAN", "STEPS", "RESULT", "MS")
_RIGHT = frozenset(map(_COLUMNS.index, ("STEPS", "MS")))
_NONE = "-"
_WIDEST = ("", "", "", "✗ stopped", "99999.9")
_WHEN = {
    Stage.ATTACH: "when it was attached",
    Stage.REPEAT: "when it was attached again",
    Stage.UNDO: "when it was taken back",
    Stage.END: "after its namespace had ended",
}

Tried = Trial | LeftOut


def dry_run(tried: Sequence[Tried], width: int) -> str:
    """Every plan with its steps, what is left out and why, and whom it would interrupt."""
    lines = ["Nothing is touched without --yes. With it, this is done:", ""]
    for _, of_card in groupby(tried, key=lambda one: one.card.id):
        group = list(of_card)
        lines.append(_title(group[0]))
        for one in group:
            lines += _left_out(one, width) if isinstance(one, LeftOut) else _steps(one)
        lines.append("")
    if any(isinstance(one, Trial) for one in tried):
        lines += wrapped(
            "Each plan is run twice and taken back, then run once more and lost with its network "
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

    def row(self, one: Result | LeftOut) -> str:
        """What came of one plan."""
        if isinstance(one, LeftOut):
            cells = _cells(one, "not tried", _NONE)
        else:
            ms = _NONE if one.milliseconds is None else f"{one.milliseconds:.1f}"
            mark = "✓" if one.passed else "✗ stopped" if one.stopped else "✗"
            cells = _cells(one.trial, mark, ms)
        return aligned(cells, self._columns, _RIGHT)


def summary(found: Sequence[Result | LeftOut], width: int) -> str:
    """A sentence for each failure and each reason, how many passed, and what to send us."""
    results = [one for one in found if isinstance(one, Result)]
    lines: list[str] = []
    for one in found:
        if isinstance(one, LeftOut):
            kind = f" · {one.kind}" if one.kind else ""
            lines += wrapped(f"{_name(one)}{kind}: not tried: {_stop(one.reason)}", width, "  ")
        else:
            lines += _troubles(one, width)
    passed = sum(one.passed for one in results)
    lines += ["", f"{passed} of {len(results)} plans passed."]
    if any(trouble.left for one in results for trouble in one.troubles):
        lines += wrapped(
            "Not everything could be given back: see above, and look at `ip link` and `rdma link` "
            "before a pod uses this card.",
            width,
            "",
        )
    if any(one.troubles for one in results):
        lines += wrapped(
            "Please send us all of this with what `kube-rdma devices --record DIR` writes, "
            "the kernel's version (`uname -r`) and its last words (`dmesg`).",
            width,
            "",
        )
    return "\n".join(lines)


def _title(one: Tried) -> str:
    card = one.card
    netdevs = [netdev.name for netdev in card.function.netdevs] if card.function else []
    where = [name for name in dict.fromkeys((*netdevs, card.id)) if name != card.name]
    return f"{card.name} ({', '.join(where)})" if where else card.name


def _name(one: Tried) -> str:
    return one.card.name


def _steps(trial: Trial) -> Iterator[str]:
    count = len(trial.plan.steps)
    yield f"  {trial.kind}, {count} steps:"
    for number, step in enumerate(trial.plan.steps, 1):
        yield f"    {number:>2}  {describe(step)}"


def _left_out(one: LeftOut, width: int) -> list[str]:
    kind = f"{one.kind}: " if one.kind else ""
    return wrapped(f"  {kind}not tried: {_stop(one.reason)}", width, "    ")


def _warning(tried: Sequence[Tried], width: int) -> Iterator[str]:
    trials = [one for one in tried if isinstance(one, Trial) and one.kind.moves]
    names = list(dict.fromkeys(one.link.name for one in trials))
    if not names:
        return
    yield ""
    verb = "leaves" if len(names) == 1 else "leave"
    yield from wrapped(
        f"Warning: {', '.join(names)} {verb} the node for a moment. Whoever uses it is "
        "interrupted, pods too: drain the node first.",
        width,
        "",
    )
    takes = (step for one in trials for step in one.plan.steps if isinstance(step, TakeLink))
    addressed = list(dict.fromkeys(step.link.name for step in takes if step.addresses))
    if addressed:
        yield from wrapped(
            f"{', '.join(addressed)} will have its addresses again afterwards, but not the routes "
            "that somebody added.",
            width,
            "",
        )


def _cells(one: Tried, result: str, ms: str) -> tuple[str, ...]:
    if isinstance(one, LeftOut):
        return _name(one), one.kind or _NONE, _NONE, result, ms
    return _name(one), one.kind, str(len(one.plan.steps)), result, ms


def _troubles(result: Result, width: int) -> Iterator[str]:
    what = f"{_name(result.trial)} · {result.trial.kind}"
    for trouble in result.troubles:
        said = f"{what}, {_WHEN[trouble.stage]}: {_act(trouble, result.trial)}{trouble.message}"
        yield from wrapped(_stop(said), width, "  ")
    if result.stopped:
        yield from wrapped(f"{what}: stopped, and taken back as far as it was done.", width, "  ")


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
