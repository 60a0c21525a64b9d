"""The pod that `verify nodes` makes by itself: it opens all healthy cards of a pool, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.model.pools import Mode
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool
from kube_rdma.verify.rules.copies import asked, pod_for
from kube_rdma.verify.rules.pods import own_pods

HCA, IB = "rdma/hca", "rdma/ib"


def report(mode, reasons, healthy, resource=HCA):
    """A node with a card for each of the reasons, which are empty for healthy ones."""
    cards = tuple(
        ReportedCard(f"pci-{n}", f"mlx5_{n}", (resource,), reasons=(why,) if why else ())
        for n, why in enumerate(reasons)
    )
    pool = ReportedPool(resource, mode, healthy, healthy, len(cards))
    return NodeReport("0.1.0", cards=cards, pools=(pool,))


REASONS = st.lists(st.sampled_from(["", "", "its port is down"]), min_size=1, max_size=8)


@given(st.sampled_from(Mode), REASONS, st.integers(0, 40))
def test_shares_are_never_more_than_are_healthy(mode, reasons, healthy):
    """With more the pod would wait for ever."""
    made = own_pods({"a": report(mode, reasons, healthy)}, "", "image")
    if mode is Mode.SRIOV or not healthy:
        assert not made.by_node
        assert made.left_out["a"]
        return
    (container,) = made.by_node["a"]["spec"]["containers"]
    shares = container["resources"]["limits"][HCA]
    assert 1 <= shares <= healthy
    assert shares == 1 if mode is Mode.HCA else shares <= len(reasons)
    named = {(node, name) for node, name, _ in made.cards}
    assert named == {("a", f"mlx5_{n}") for n, why in enumerate(reasons) if why}


def test_the_pod_is_on_the_node_s_network_and_is_placed_on_tainted_nodes():
    made = own_pods({"a": report("hca", [""], 1000)}, HCA, "registry.example.com/perftest:1")
    spec = pod_for(made.by_node["a"], "a", "run", "file")["spec"]
    assert spec["hostNetwork"] is True
    assert spec["tolerations"] == [{"operator": "Exists", "effect": "NoSchedule"}]
    assert spec["containers"][0]["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert asked(made.by_node["a"]) == {HCA}


def test_nodes_without_the_resource_are_told():
    reports = {"a": report("hca", [""], 1000), "b": report("hca", [""], 1000, IB)}
    made = own_pods(reports, HCA, "image")
    assert (set(made.by_node), made.left_out) == (
        {"a"},
        {"b": "its NodeReport has no pool rdma/hca"},
    )


@pytest.mark.parametrize(
    ("reports", "wanted", "words"),
    [
        ({}, "", "no NodeReport has a pool of cards"),
        ({"a": NodeReport("0.1.0")}, HCA, "no NodeReport has a pool of cards"),
        ({"a": report("hca", [""], 1)}, IB, "--resource: no NodeReport has a pool rdma/ib"),
        (
            {"a": report("hca", [""], 1), "b": report("hca", [""], 1, IB)},
            "",
            "the nodes have 2 resources. Choose one with --resource: rdma/hca, rdma/ib.",
        ),
    ],
)
def test_without_one_resource_it_is_refused_with_what_to_do(reports, wanted, words):
    with pytest.raises(Refused) as refusal:
        own_pods(reports, wanted, "image")
    assert words in str(refusal.value)
