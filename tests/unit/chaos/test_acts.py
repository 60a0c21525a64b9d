"""Each kind of node has an act for each fault that its site may have, and an end for what lasts."""

import time

import pytest

from chaos import machine_acts, native_acts, sites
from chaos.acts import Hand
from chaos.faults import Faults
from chaos.schedule import LASTING, Fault, Target
from kube_base.errors import Refused
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.state import State

TARGET = Target("node-1", "ens2f0")


def lab_of(folder, topology):
    """A lab that does not run."""
    return Lab(folder, State("none", topology, 0, "up", 0.0))


class Recorder(Hand):
    """A hand that writes scripts down in place of running them."""

    def __init__(self, lab):
        super().__init__(lab)
        self.scripts = []

    def shell(self, node, script):
        self.scripts.append((node, script))


@pytest.fixture
def hand(tmp_path):
    return Recorder(lab_of(tmp_path, "four-cards"))


@pytest.mark.parametrize("site", sites.SITES, ids=lambda site: site.topology)
def test_every_fault_of_a_site_can_begin_and_what_lasts_can_end(tmp_path, site):
    table = Faults(lab_of(tmp_path, site.topology)).acts
    assert {*table} == {*site.faults}
    assert {fault for fault, acts in table.items() if acts.end} == {*LASTING} & {*site.faults}


def test_kinds_of_nodes_differ_in_the_same_faults(hand):
    """All but those that one kind alone can have."""
    assert {*machine_acts.acts(hand)} - {*native_acts.acts(hand)} == sites.OF_MACHINES


def test_a_lab_of_another_topology_is_refused(tmp_path):
    with pytest.raises(Refused, match="no pools for the topology drivers"):
        Faults(lab_of(tmp_path, "drivers"))


def test_nobody_hears_a_signal_on_a_node_that_is_off(tmp_path):
    hand = Hand(lab_of(tmp_path, "control-plane"))
    with pytest.raises(Refused, match="no node 'node-1'"):
        hand.signal("node-1", "KILL", "kubelet")
    hand.off.add("node-1")
    hand.signal("node-1", "KILL", "kubelet")


def test_scripts_name_the_card_that_is_hit(hand):
    acts = machine_acts.acts(hand)[Fault.CARD_REMOVED]
    acts.begin(TARGET)
    acts.end(TARGET)
    (_, pulled), (_, plugged) = hand.scripts
    assert "/sys/class/net/ens2f0/device" in pulled
    assert "grep ' ens2f0 ' /lab/nics" in plugged
    assert "{card}" not in pulled + plugged


def test_a_cut_leaves_nothing_of_itself():
    """Each rule that is put in is taken out."""
    put = [line.replace(" -I ", " -D ") for line in machine_acts.CUT.splitlines()]
    assert put == machine_acts.JOIN.splitlines()


@pytest.mark.parametrize(("fault", "sign"), [(Fault.CLOCK_AHEAD, 1), (Fault.CLOCK_BEHIND, -1)])
def test_a_clock_comes_back_to_this_machine_s_not_by_the_way_that_it_went(hand, fault, sign):
    acts = machine_acts.acts(hand)[fault]
    before = time.time()
    acts.begin(TARGET)
    acts.end(TARGET)
    after = time.time()
    jump, back = (int(script.removeprefix("date -s @")) for _, script in hand.scripts)
    assert before - 1 <= back <= after + 1
    assert before - 1 <= jump - sign * machine_acts.JUMP_SECONDS <= after + 1
