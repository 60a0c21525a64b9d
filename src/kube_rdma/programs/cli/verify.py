"""`kube-rdma verify`: does this hardware do what kube-rdma asks of it, do pods reach each other?

The self-test is for whoever has cards that nobody else can try; without --yes it only tells what it
would do. `verify pods` and `verify nodes` measure from pod to pod (cli/verify_pods).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from kube_rdma.model.selftest import SelftestRequest, TrialKind
from kube_rdma.programs.cli.exit_codes import ExitCode
from kube_rdma.programs.cli.output import page_width
from kube_rdma.programs.cli.verify_pods import verify_nodes, verify_pods

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_rdma.model.selftest import Trial, TrialResult, UntriedCard
    from kube_rdma.programs.selftest import SelftestDependencies


@click.group(invoke_without_command=True)
@click.option(
    "--hardware-selftest",
    "hardware",
    is_flag=True,
    help="Put the cards of this node into a network namespace and back, as the agent does.",
)
@click.option(
    "--card",
    "cards",
    metavar="NAME|PCI",
    multiple=True,
    help="An RDMA device, an interface or a PCI address; may be repeated. Without it, all cards.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([kind.value for kind in TrialKind]),
    multiple=True,
    help="What to try; may be repeated. Without it, whatever fits the card.",
)
@click.option("--yes", is_flag=True, help="Do it; without this, only tell what would be done.")
@click.pass_context
def verify(
    context: click.Context,
    hardware: bool,
    cards: tuple[str, ...],
    kinds: tuple[str, ...],
    yes: bool,
) -> None:
    """Measure from pod to pod, or try on this node's cards what the agent does for pods.

    The self-test takes back what it did. Cards that the node is reached through are never touched.
    A card's own interface moves only when --card names it, that of an idle virtual function always.
    Exits with 1 when a plan did not pass, with 3 when there is nothing to try.
    """
    if context.invoked_subcommand is not None:
        if hardware:
            raise click.UsageError("--hardware-selftest stands alone: leave out the rest.")
        return
    if not hardware:
        raise click.UsageError("Say what to verify: pods, nodes or --hardware-selftest.")
    asked = SelftestRequest(
        tuple(dict.fromkeys(cards)), tuple(TrialKind(kind) for kind in dict.fromkeys(kinds))
    )
    from kube_rdma.programs.selftest import listening, real_doors

    if yes and os.geteuid() != 0:
        from kube_rdma.model.errors import Refused

        raise Refused(
            "only root may move cards into another network namespace",
            remedy="Run it with sudo, or leave --yes out to see what would be done",
            where="--yes",
        )
    with listening() as stopped:
        passed = verified(asked, real_doors(stopped), click.echo, yes=yes)
    if stopped():
        sys.exit(ExitCode.INTERRUPTED)
    if not passed:
        sys.exit(ExitCode.PROBLEM)


verify.add_command(verify_pods)
verify.add_command(verify_nodes)


def verified(
    asked: SelftestRequest, doors: SelftestDependencies, say: Callable[[str], None], *, yes: bool
) -> bool:
    """Show or do it, and say whether every plan passed.

    Raise Refused when there is none to try.
    """
    from kube_rdma.programs.selftest import selftest, this_system
    from kube_rdma.rules.selftest import trials
    from kube_rdma.views.selftest import Table, dry_run, summary
    from kube_rdma.views.selftest_report import report

    width = page_width()
    scene = doors.look()
    tried = trials(scene, asked)
    if not yes:
        say(dry_run(tried, width))
        _refuse_nothing(tried)
        return True
    table = Table(tried)
    say(table.head)
    outcomes = selftest(asked, doors, lambda one: say(table.row(one)))
    say("")
    say(summary(outcomes, width))
    say("")
    say(report(this_system(), scene, outcomes, width))
    _refuse_nothing(tried)
    return _all_passed(outcomes)


def _refuse_nothing(tried: tuple[Trial | UntriedCard, ...]) -> None:
    from kube_rdma.model.errors import Refused
    from kube_rdma.model.selftest import UntriedCard

    if all(isinstance(one, UntriedCard) for one in tried):
        raise Refused(
            "there is no plan to try on these cards, for the reasons above",
            remedy="Name another card with --card, or another kind with --kind",
            where="--hardware-selftest",
        )


def _all_passed(outcomes: tuple[TrialResult | UntriedCard, ...]) -> bool:
    from kube_rdma.model.selftest import TrialResult

    return all(one.passed for one in outcomes if isinstance(one, TrialResult))
