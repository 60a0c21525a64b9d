"""`kube-rdma verify`: does this hardware do what kube-rdma asks of it, do pods reach each other?

The self-test is for whoever has cards that nobody else can try; without --yes it only tells what it
would do. `verify pods` and `verify nodes` measure from pod to pod (cli/verify_pods).
"""

from __future__ import annotations

import click

from kube_rdma.cli.beside import beside
from kube_rdma.cli.examples import examples
from kube_rdma.cli.verify_pods import verify_nodes, verify_pods

SELFTEST = "kube_rdma_selftest.command"
# What a trial of the self-test makes of a card (kube_rdma_selftest/trial.py).
KINDS = "macvlan", "ipvlan", "ipoib", "take", "function"


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
    type=click.Choice(KINDS),
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
    beside(SELFTEST, "self-test of hardware", "--hardware-selftest").selftest(cards, kinds, yes=yes)


verify.add_command(verify_pods)
verify.add_command(verify_nodes)
