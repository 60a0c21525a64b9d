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
from kube_rdma.programs.cli.examples import examples
from kube_rdma.programs.cli.exit_codes import ExitCode
from kube_rdma.programs.cli.output import page_width
from kube_rdma.programs.cli.verify_pods import verify_nodes, verify_pods

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_rdma.model.selftest import Trial, TrialResult, UntriedCard
    from kube_rdma.programs.selftest import SelftestDependencies


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "kube-rdma verify pods -l app=train -n train",
        "kube-rdma verify --hardware-selftest",
        "kube-rdma verify --hardware-selftest --yes --card mlx5_0 --kind macvlan",
    ),
)
@click.option(
    "--hardware-selftest",
    "hardware",
    is_flag=True,
    help="Test this node's cards: put interfaces of theirs into a network namespace and back, as "
    "the agent does for pods. Without --yes it only shows the tests.",
)
@click.option(
    "--card",
    "cards",
    metavar="NAME|PCI",
    multiple=True,
    help="Card to test, by its RDMA device, interface or PCI address. May be repeated. Default: "
    "all RDMA cards and virtual functions.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([kind.value for kind in TrialKind]),
    multiple=True,
    help="Test to run. macvlan, ipvlan and ipoib make an interface on the card. take moves the "
    "card's own interface. function moves a virtual function that its physical function sets up. "
    "May be repeated. Default: the tests that fit the card.",
)
@click.option(
    "--yes", is_flag=True, help="Run the tests. Needs root. Without it, they are only shown."
)
@click.pass_context
def verify(
    context: click.Context,
    hardware: bool,
    cards: tuple[str, ...],
    kinds: tuple[str, ...],
    yes: bool,
) -> None:
    """Measure RDMA between pods, or test cards.

    `pods` and `nodes` measure from pod to pod. --hardware-selftest tries on this node's cards what
    the agent does for pods, and takes it back. It never touches cards that the node is reached
    through. A card's own interface moves only when --card names it; an idle virtual function moves
    without that.

    Exits with 1 when a test did not pass, with 3 when there is nothing to test.
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
        from kube_base.errors import Refused

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
    from kube_base.errors import Refused
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
