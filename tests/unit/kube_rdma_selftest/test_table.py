"""What a person reads of a self-test: a row each, a sentence for each failure, what to send."""

from kube_base.frozen import replace
from kube_rdma.attach.rules.undo import undo
from kube_rdma.lib.page import page_text
from kube_rdma_selftest.choice import trials
from kube_rdma_selftest.report import report
from kube_rdma_selftest.table import Table, dry_run, summary
from kube_rdma_selftest.trial import (
    SelftestRequest,
    SelftestSystem,
    TrialKind,
    TrialResult,
    TrialStage,
    Trouble,
    UntriedCard,
)
from tests.kit.pod_networks import card
from tests.unit.kube_rdma_selftest.test_choice import ADDRESS, scene, with_links

TAKE, FUNCTION = trials(scene(card(2, virtual=True)), SelftestRequest())
LEFT = UntriedCard(card(1), "the node itself is reached through ens1f0, which is never touched")
BRING = "bring kr-selftest up, with MTU 8900"
BUSY = "the kernel refuses: Device or resource busy"


def test_rows_stand_below_their_heads():
    table = Table((TAKE, FUNCTION, LEFT))
    pages = [
        table.head,
        table.row(TrialResult(TAKE, 12.34)),
        table.row(TrialResult(FUNCTION, None, (Trouble(TrialStage.ATTACH, BUSY),))),
        table.row(TrialResult(FUNCTION, 1234.5, stopped=True)),
        table.row(LEFT),
    ]
    assert [page_text(page, 100) for page in pages] == [
        "CARD    PLAN      STEPS  RESULT          MS",
        "mlx5_2  take         11  ✓             12.3",
        "mlx5_2  function     13  ✗                -",
        "mlx5_2  function     13  ✗ stopped   1234.5",
        "mlx5_1  -             -  not tried        -",
    ]


def test_a_failure_names_the_step_when_and_what_the_kernel_said():
    step = TAKE.plan.steps[2]
    text = page_text(
        summary([TrialResult(TAKE, 1.0, (Trouble(TrialStage.REPEAT, BUSY, step),)), LEFT]), 200
    )
    assert text.splitlines()[:2] == [
        f"mlx5_2 · take, when it was attached again: step 3, {BRING}: {BUSY}.",
        "mlx5_1: not tried: the node itself is reached through ens1f0, which is never touched.",
    ]
    assert "0 of 1 plans passed." in text
    assert "kube-rdma devices --record DIR" in text
    assert "given back" not in text


def test_what_is_left_over_is_said_loudly():
    *_, act = undo(TAKE.plan)
    text = page_text(
        summary([TrialResult(TAKE, 1.0, (Trouble(TrialStage.UNDO, BUSY, act, left=True),))]), 200
    )
    assert "when it was undone: give kr-selftest back to the node as ens2f0, up" in text
    assert "Not everything could be given back" in text


def test_a_self_test_without_failures_asks_for_nothing():
    assert page_text(summary([TrialResult(TAKE, 1.0)]), 100) == "\n1 of 1 plans passed."


def test_a_dry_run_warns_of_what_will_be_interrupted_and_of_lost_routes():
    text = page_text(dry_run((TAKE, LEFT)), 200)
    assert " 1  take ens2f0 from the node as kr-selftest" in text
    assert "Warning: ens2f0 leaves the node for a moment." in text
    assert "routes" not in text.rpartition("Warning")[2]
    where = with_links(scene(card(2, virtual=True)), addresses=(ADDRESS,))
    addressed = trials(where, SelftestRequest(("ens2f0",), (TrialKind.TAKE,)))
    assert "but no routes with several next hops" in page_text(dry_run(addressed), 200)


def test_a_dry_run_of_nothing_promises_nothing():
    assert "Each plan" not in page_text(dry_run((replace(LEFT, kind=TrialKind.TAKE),)), 100)


SYSTEM = SelftestSystem("0.1.0", "6.1.0-28-amd64", "x86_64")


def test_the_report_is_one_paragraph_with_all_that_is_asked_first():
    """Versions, the card with its driver and function, each plan with what came of it."""
    step = TAKE.plan.steps[2]
    failed = TrialResult(FUNCTION, None, (Trouble(TrialStage.REPEAT, BUSY, step),))
    text = page_text(
        report(SYSTEM, scene(card(2, virtual=True)), [TrialResult(TAKE, 1.0), failed]), 100
    )
    assert "\n\n" not in text
    words = " ".join(text.split())
    for part in (
        "kube-rdma 0.1.0 on Linux 6.1.0-28-amd64 (x86_64), RDMA namespace mode shared.",
        f"mlx5_2 (ens2f0, {TAKE.card.id}, ",
        "virtual function 0 of ",
        "take passed; function failed (when attached again: ",
        BUSY,
    ):
        assert part in words, part


def test_the_report_names_a_card_s_altnames():
    """A name that is taken as an altname hinders a plan, and nothing else shows it."""
    names = ("enp129s0f0np0", "rdma0")
    where = replace(scene(card(2)), altnames=(("ens2f0", names), ("ens1f0", ("other",))))
    text = page_text(report(SYSTEM, where, [UntriedCard(card(2), "a reason", TrialKind.TAKE)]), 500)
    assert f"mlx5_2 (ens2f0, {card(2).id}, altname {names[0]}, altname {names[1]}, " in text
    assert "other" not in text


def test_the_report_names_what_stands_on_a_card():
    """A bond is why a card is left out, and where many faults begin."""
    bonded = card(1)
    (device,) = bonded.devices
    ports = tuple(replace(port, bond="bond0") for port in device.ports)
    bonded = replace(bonded, devices=(replace(device, ports=ports),))
    where = replace(scene(bonded), above=(("ens1f0", ("bond0",)),))
    reason = "bond0 stands on ens1f0, and would not get it back"
    text = page_text(report(SYSTEM, where, [UntriedCard(bonded, reason, TrialKind.TAKE)]), 500)
    assert "in bond0, below bond0)" in text
    assert f": take not tried, for {reason}." in text
