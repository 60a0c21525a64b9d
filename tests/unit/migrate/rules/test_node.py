"""The way of a node to claims: what stands in its way, whom it concerns, and its commands."""

import pytest

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.migrate.rules.node import SERVE, plan_node
from kube_rdma.model.migrate import MigratingNode, ServingView, SharingPod
from kube_rdma.pools.documents.config import SERVE_LABEL

HCA, NIC = "rdma/hca", "rdma/nic"
NODE = MigratingNode("node-1", {HCA: "1k"})
VIEW = ServingView(NODE, "v1.36.3", (HCA,), frozenset({HCA}), {HCA: "rdma-hca"}, True)
OLD = SharingPod("team", "old", {HCA: 1})
NEW = SharingPod("team", "new", {HCA: 1}, frozenset({HCA}))


def commands(view):
    plan = plan_node(view)
    return [[c for step in steps for c in step.commands] for steps in (plan.steps, plan.back)]


def test_it_speaks_of_the_label_of_the_agent():
    assert SERVE == SERVE_LABEL


def test_no_pod_comes_while_the_kubelet_has_neither():
    for way in commands(VIEW):
        assert (way[0], way[-1]) == ("kubectl cordon node-1", "kubectl uncordon node-1")


def test_a_node_that_took_no_pods_takes_none_afterwards():
    closed = replace(VIEW, node=replace(NODE, unschedulable=True))
    for way in commands(closed):
        assert not any("uncordon" in command for command in way)


def test_shares_end_before_devices_are_waited_for_and_the_other_way_round():
    there, back = commands(replace(VIEW, resources=(HCA, NIC), classes={HCA: "a", NIC: "b"}))
    assert [f"{SERVE_LABEL}=claims" in c for c in there].index(True) == 1
    assert [f"{SERVE_LABEL}=plugin" in c for c in back].index(True) == 1
    zero = [n for n, c in enumerate(there) if c.endswith("=0")]
    slices = [n for n, c in enumerate(there) if "resourceslices" in c]
    assert len(zero) == len(slices) == 2
    assert max(zero) < min(slices)
    gone = [n for n, c in enumerate(back) if "resourceslices" in c]
    some = [n for n, c in enumerate(back) if "allocatable" in c]
    assert max(gone) < min(some)


def test_pods_of_both_kinds_are_named():
    notes = plan_node(replace(VIEW, pods=(OLD, NEW))).notes
    assert "held by team/old" in notes[0]
    assert "held by team/new" in notes[1]
    assert plan_node(VIEW).notes == ()


def test_a_pod_that_asks_for_two_of_a_whole_pool_is_told():
    """One device stands for all cards, and a claim for two has to have two devices."""
    two = replace(OLD, asked={HCA: 2})
    (_, note) = plan_node(replace(VIEW, pods=(two,))).notes
    assert note.startswith("team/old asks for more than 1 rdma/hca, which is one device")
    assert len(plan_node(replace(VIEW, pods=(two,), whole=frozenset())).notes) == 1


def test_a_node_that_reports_a_version_of_thousands_of_digits_gets_its_plan():
    """Python reads no such number, and whoever has a node's token writes its version."""
    version = f"v1.{'9' * 5_000}"
    assert plan_node(replace(VIEW, kubelet_version=version)).steps == plan_node(VIEW).steps


def test_all_that_stands_in_the_way_is_said_at_once():
    with pytest.raises(Refused) as caught:
        plan_node(replace(VIEW, kubelet_version="v1.30.1", serves_claims=False, classes={}))
    faults = str(caught.value)
    assert "the kubelet of node-1 is v1.30.1" in faults
    assert "claims.enabled=true" in faults
    assert "claims.classes=[{name: rdma-hca, resource: rdma/hca}]" in faults


def test_a_name_that_a_report_makes_up_becomes_no_command():
    """A node's own token writes its report."""
    name = 'rdma/x$(touch PWNED)"'
    view = replace(VIEW, resources=(HCA, name), classes={HCA: "rdma-hca", name: "c"})
    with pytest.raises(Refused, match="has a resource of no valid name"):
        plan_node(view)
