"""Chaos on machines: transfers that fail are found, and a seed of faults leaves nothing behind.

The lab is this file's own, for its nodes go off and its clocks jump. native/test_chaos.py plants
what the audit finds on both kinds of nodes.
"""

import os

import pytest

from chaos import machine_acts, setup, sites, traffic
from chaos.acts import Hand
from chaos.audit import audit
from chaos.collect import collect
from chaos.faults import Faults
from chaos.load import LABEL, documents
from chaos.run import Run
from chaos.schedule import OF_A_CARD, Begin, Create, Fault, Size, Target, Way, schedule
from kube_base.frozen import replace
from kube_rdma_lab import cluster, waiting
from tests.groups import own
from tests.lab.conftest import up

pytestmark = pytest.mark.slow  # machines of its own, one of which boots again
NAME, VARIABLE = own("chaos-machines"), "KUBE_RDMA_TEST_CHAOS_MACHINES"
NODE, OTHER = sites.NODES
PODS = (Create("here", NODE, Way.SHARE), Create("there", OTHER, Way.SHARE))
# Of a node with one pod of the load: what its namespace refuses, perftest's server among it.
SPACE = (
    "$(for path in /run/netns/*; do"
    " nsenter --net=$path ip link show net1 >/dev/null 2>&1 && echo $path; done)"
)
RULE = "INPUT -p tcp --dport 18515 -j REJECT"
SHORT = Size(pods=6, faults=4, longest=1)
FAULTS = (Fault.NODE_OFF, Fault.CARD_REMOVED, Fault.CLOCK_AHEAD)
SEED = 45  # has each of them


@pytest.fixture(scope="module")
def ground():
    """The lab with kube-rdma on it, and what it shows without pods.

    The environment may name one that `make chaos ARGS="--machines --lab NAME"` left up.
    """
    with up(NAME, "four-cards", "kube-rdma lab up --topology four-cards", VARIABLE) as lab:
        if VARIABLE not in os.environ:
            setup.install(lab)
        yield lab, collect(lab)


@pytest.fixture(scope="module")
def loaded(ground):
    """A pod on each node, on one rail, for the tests behind those that need none."""
    lab, before = ground
    cluster.apply(lab, *(each for made in PODS for each in documents(made, has_verbs=True)))
    cluster.ready(lab, *(made.name for made in PODS))
    yield lab, before
    for kind in ("pods", "resourceclaimtemplates"):
        cluster.kubectl(lab, "delete", kind, "-l", LABEL, "--wait")


def kinds(lab, before):
    """What is wrong, with each pair of pods asked to write."""
    seen = collect(lab)
    seen = replace(seen, transfers=traffic.transfers(lab, seen))
    assert seen.transfers
    return {(each.wrong, each.thing) for each in audit(seen, before)}


@pytest.mark.parametrize("fault", [*machine_acts.acts(Hand(None))], ids=lambda fault: fault.value)
def test_a_fault_of_a_machine_is_over_when_it_ended(ground, fault):
    """With no pods: the node, its cards and what is offered are as before."""
    lab, before = ground
    target = Target(NODE, sites.MACHINES.by_share[0] if fault in OF_A_CARD else "")
    faults = Faults(lab)
    faults.begin(fault, target)
    faults.end(fault, target)
    waiting.until(lab, "an audit without a finding", lambda: not audit(collect(lab), before))


def test_a_short_run_of_faults_of_machines_leaves_nothing_behind(ground):
    """A power cut, a card that goes, a clock that jumps."""
    lab, before = ground
    steps = schedule(SEED, sites.MACHINES.place, SHORT, FAULTS)
    assert {step.fault for step in steps if isinstance(step, Begin)} == {*FAULTS}
    outcome = Run(lab, before, print).take(steps)
    assert outcome.is_clean, outcome


def test_two_pods_write_to_each_other_by_verbs(loaded):
    assert not kinds(*loaded)


def test_a_transfer_that_cannot_be_is_found(loaded):
    lab, before = loaded
    cluster.shell(lab, NODE, f"nsenter --net={SPACE} iptables -I {RULE}")
    try:
        assert kinds(lab, before) == {("silent", "transfer")}
    finally:
        cluster.shell(lab, NODE, f"nsenter --net={SPACE} iptables -D {RULE}")


def test_an_rdma_device_that_nobody_has_is_found(loaded):
    lab, before = loaded
    cluster.shell(lab, NODE, "rdma link add rxe9 type rxe netdev ens6f0")
    try:
        assert ("leaked", "RDMA device") in {
            (each.wrong, each.thing) for each in audit(collect(lab), before)
        }
    finally:
        cluster.shell(lab, NODE, "rdma link delete rxe9")
