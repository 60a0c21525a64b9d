"""The hardware self-test on a made-up kernel: what passes, what fails, and what comes back."""

import os
import signal
from contextlib import contextmanager
from ipaddress import ip_address

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.cli.main import cli
from kube_rdma.lib.page import page_text
from kube_rdma.model.attach.steps import GiveBackLink, RemoveLink
from kube_rdma_selftest.command import verified
from kube_rdma_selftest.run import listening, run_trials
from kube_rdma_selftest.trial import SelftestRequest, TrialKind, TrialStage, UntriedCard
from tests.kit.pod_networks import card
from tests.kit.selftest_world import World

WIDE = {"link_type": "infiniband"}
WORLDS = {
    "physical": lambda: World(card(0)),
    "soft": lambda: World(card(0, soft=True)),
    "infiniband": lambda: World(card(0, **WIDE)),
    "function": lambda: World(card(0, virtual=True)),
    "soft function": lambda: World(card(0, soft=True, virtual=True)),
    "infiniband function": lambda: World(card(0, virtual=True, **WIDE)),
    "exclusive function": lambda: World(card(0, virtual=True), exclusive=True),
    "exclusive infiniband": lambda: World(card(0, virtual=True, **WIDE), exclusive=True),
}
NAMED = SelftestRequest(("ens0f0",))


def run(world, asked=NAMED):
    told = []
    found = run_trials(asked, world.dependencies(), told.append)
    assert tuple(told) == found
    return found


@pytest.fixture(params=WORLDS)
def world(request):
    return WORLDS[request.param]()


def test_every_plan_passes_and_the_node_is_as_before(world):
    before = world.state()
    found = run(world)
    assert [one.troubles for one in found] == [()] * len(found)
    assert len(found) >= 2
    assert all(one.passed and one.milliseconds is not None for one in found)
    assert world.state() == before


def test_a_kernel_that_fails_at_a_step_gives_all_back_and_the_step_is_named(world):
    """Each Step of the first plan in each of its three runs, then of the next plans."""
    run(world)
    steps, before = world.ran, world.state()
    for number in range(1, steps + 1):
        world.ran, world.fail_at = 0, number
        failed = [one for one in run(world) if not one.passed]
        assert world.state() == before
        ((trouble,),) = [one.troubles for one in failed]
        assert trouble.act in failed[0].trial.plan.steps
        assert "busy" in trouble.message
        assert not trouble.left


def test_what_cannot_be_given_back_is_said_and_the_rest_comes_back():
    world = World(card(0, soft=True, virtual=True))
    world.fail_undo = GiveBackLink
    result, then = run(world, SelftestRequest(("ens0f0",), (TrialKind.FUNCTION, TrialKind.TAKE)))
    first = result.troubles[0]
    assert (then.kind, then.reason) == (
        TrialKind.TAKE,
        "not everything of this card could be given back",
    )
    assert (first.stage, first.left, type(first.act)) == (TrialStage.UNDO, True, GiveBackLink)
    assert world.kernel.named(world.kernel.node, "pf10").functions[0].vlan == 0
    assert world.waited >= world.dependencies().patience


def test_what_is_left_in_the_namespace_is_said():
    """Undo that does nothing: a driver that lies."""
    world = World(card(0))

    class Lying:
        def __init__(self, pod):
            self.run, self.look, self._undo = pod.run, pod.look, pod.undo

        def undo(self, act):
            if not isinstance(act, RemoveLink):
                self._undo(act)

    @contextmanager
    def open_pod(namespace):
        with world.open_pod(namespace) as pod:
            yield Lying(pod)

    dependencies = replace(world.dependencies(), open_pod=open_pod)
    found = run_trials(
        SelftestRequest(("ens0f0",), (TrialKind.MACVLAN,)), dependencies, lambda _: None
    )
    assert "the interface kr-selftest was left in the namespace" in [
        one.message for one in found[0].troubles
    ]


def test_a_signal_ends_it_after_the_step_and_all_comes_back(world):
    run(world)
    steps, before = world.ran, world.state()
    for number in range(1, steps):
        world.ran, world.stop_at = 0, number
        found = run(world)
        assert world.state() == before
        assert world.ran == number
        assert not [one for one in found if one.troubles]


def test_a_card_that_gets_an_address_meanwhile_is_left_alone():
    """Between the first look and its turn."""
    world = World(card(0, virtual=True), card(1, virtual=True))
    told = []

    def tell(one):
        told.append(one)
        link = world.kernel.named(world.kernel.node, "ens1f0")
        link.addresses = [(ip_address("10.0.0.1"), 24)]

    found = run_trials(SelftestRequest(), world.dependencies(), tell)
    assert [one.passed for one in found if not isinstance(one, UntriedCard)] == [True, True]
    left = [one for one in found if isinstance(one, UntriedCard)]
    assert {one.card.id for one in left} == {world.cards[1].id}
    assert "10.0.0.1/24" in left[0].reason


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_heard_and_interrupts_nothing(number):
    before = signal.getsignal(number)
    with listening() as stopped:
        assert not stopped()
        os.kill(os.getpid(), number)
        assert stopped()
    assert signal.getsignal(number) is before


def test_a_card_whose_device_has_another_name_by_now_is_still_the_card():
    """Binding the driver of an InfiniBand function anew gives it one."""
    world = World(card(0, virtual=True, **WIDE))
    found = run(world, SelftestRequest(("mlx5_0",), (TrialKind.FUNCTION, TrialKind.TAKE)))
    assert [one.passed for one in found] == [True, True]
    assert world.kernel.rdma[0].name != "mlx5_0"


def texts(pages):
    """What a pipe gets of them."""
    return "\n".join(page_text(page, 100) for page in pages)


def test_the_command_tells_before_it_does():
    world = World(card(0), card(1, virtual=True))
    said = []
    assert verified(SelftestRequest(), world.dependencies(), said.append, yes=False)
    text = texts(said)
    assert world.ran == 0
    assert "Nothing is touched without --yes" in text
    assert "take ens1f0 from the node as kr-selftest" in text
    assert "Warning: ens1f0 leaves the node for a moment." in text


def test_the_command_shows_a_row_for_each_plan_and_a_sentence_for_each_failure():
    world = World(card(0))
    said = []
    assert verified(SelftestRequest(), world.dependencies(), said.append, yes=True)
    passed, paragraph = texts(said).split("\n\n")[-2:]
    assert passed.endswith("2 of 2 plans passed.")
    assert paragraph.startswith("For a bug report: kube-rdma ")
    assert "macvlan passed; ipvlan passed." in " ".join(paragraph.split())
    world.ran, world.fail_at, said = 0, 1, []
    assert not verified(SelftestRequest(), world.dependencies(), said.append, yes=True)
    text = texts(said)
    assert "when it was attached: step 1, make kr-selftest, macvlan (bridge) on ens0f0" in text
    assert "1 of 2 plans passed." in text
    assert "kube-rdma devices --record" in text


@pytest.mark.parametrize("yes", [False, True])
def test_nothing_to_try_is_refused_after_the_reasons(yes):
    world = World(card(0))
    world.routed = ("ens0f0",)
    said = []
    with pytest.raises(Refused, match="no plan to try"):
        verified(SelftestRequest(), world.dependencies(), said.append, yes=yes)
    assert "the node itself is reached through ens0f0" in texts(said)
    assert world.ran == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Say what to verify"),
        (["--hardware-selftest", "--kind", "veth"], "'veth' is not one of"),
    ],
)
def test_what_the_command_does_not_understand_is_a_usage_error(words, complaint):
    result = CliRunner().invoke(cli, ["verify", *words])
    assert result.exit_code == 2
    assert complaint in result.output


def test_a_card_that_is_not_there_is_refused_with_those_that_are():
    result = CliRunner().invoke(cli, ["verify", "--hardware-selftest", "--card", "mlx5_99"])
    assert isinstance(result.exception, Refused)
    assert "no card mlx5_99" in str(result.exception)
