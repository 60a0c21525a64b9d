"""`kube-rdma verify --hardware-selftest`: shows the trials, or runs them.

cli/verify finds `selftest` by the name of this module, and has read the options.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from kube_base.errors import Refused
from kube_rdma import __version__
from kube_rdma.cli.output import ExitCode, show
from kube_rdma.lib.page import Line, Page
from kube_rdma_selftest.choice import trials
from kube_rdma_selftest.report import report
from kube_rdma_selftest.run import (
    SelftestDependencies,
    listening,
    run_trials,
)
from kube_rdma_selftest.table import Table, dry_run, summary
from kube_rdma_selftest.trial import (
    SelftestRequest,
    SelftestSystem,
    Trial,
    TrialKind,
    TrialResult,
    UntriedCard,
)

_EMPTY: Page = ((Line(""),),)


def selftest(cards: Sequence[str], kinds: Sequence[str], *, yes: bool) -> None:
    """Show the trials, or run them if `yes`; exit as `kube-rdma verify` documents it.

    `cards` are RDMA devices, interfaces or PCI addresses, `kinds` names of TrialKind. Empty ones
    mean all that fit. Raise Refused for `yes` without root, an unknown card, or nothing to try.
    """
    asked = SelftestRequest(
        tuple(dict.fromkeys(cards)), tuple(TrialKind(kind) for kind in dict.fromkeys(kinds))
    )
    if yes and os.geteuid() != 0:
        raise Refused(
            "only root may move cards into another network namespace",
            remedy="Run it with sudo, or leave --yes out to see what would be done",
            where="--yes",
        )
    with listening() as stopped:
        passed = verified(asked, SelftestDependencies(stopped=stopped), show, yes=yes)
    if stopped():
        sys.exit(ExitCode.INTERRUPTED)
    if not passed:
        sys.exit(ExitCode.PROBLEM)


def verified(
    asked: SelftestRequest,
    dependencies: SelftestDependencies,
    say: Callable[[Page], None],
    *,
    yes: bool,
) -> bool:
    """Show the trials, or run them if `yes`; return whether all that were run passed.

    Raise Refused for an unknown card, or if there is nothing to try.
    """
    scene = dependencies.look()
    tried = trials(scene, asked)
    if not yes:
        say(dry_run(tried))
        _refuse_nothing(tried)
        return True
    table = Table(tried)
    say(table.head)
    outcomes = run_trials(asked, dependencies, lambda result: say(table.row(result)))
    say(_EMPTY)
    kernel = os.uname()
    system = SelftestSystem(__version__, kernel.release, kernel.machine)
    say((*summary(outcomes), *report(system, scene, outcomes)))
    _refuse_nothing(tried)
    return all(one.passed for one in outcomes if isinstance(one, TrialResult))


def _refuse_nothing(tried: tuple[Trial | UntriedCard, ...]) -> None:
    if all(isinstance(one, UntriedCard) for one in tried):
        raise Refused(
            "there is no plan to try on these cards, for the reasons above",
            remedy="Name another card with --card, or another kind with --kind",
            where="--hardware-selftest",
        )
