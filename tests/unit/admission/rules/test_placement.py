"""What a selector and an affinity leave open of the mode of the pod's cards."""

import pytest

from kube_rdma.admission.rules.shares import fixed_mode, possible
from kube_rdma.model.admission import AdmissionFacts, OfferedPool
from kube_rdma.model.pools import Mode, PoolSpec
from tests.kit.admission import VKE, asking, template

LABEL = "vke.node.rdma.mode"
SHARED = OfferedPool(PoolSpec(VKE, Mode.SHARED, "a"), (("pool", "a"),))
MULTI = OfferedPool(PoolSpec(VKE, Mode.SHARED_MULTI, "b"), (("pool", "b"),))
EVERYWHERE = OfferedPool(PoolSpec(VKE, Mode.EXCLUSIVE, "c"))


def affine(*terms):
    """An affinity to nodes with one of these terms, each of (key, operator, values)."""
    made = [
        {
            "matchExpressions": [
                {"key": key, "operator": operator, "values": list(values)}
                for key, operator, values in term
            ]
        }
        for term in terms
    ]
    required = {"nodeSelectorTerms": made}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ({}, None),
        ({"nodeSelector": {"k": "a"}}, {"a"}),
        ({"affinity": affine([("k", "In", "ab")])}, {"a", "b"}),
        ({"affinity": affine([("k", "In", "ab"), ("k", "In", "bc")])}, {"b"}),
        ({"affinity": affine([("k", "In", "a")], [("k", "In", "b")])}, {"a", "b"}),
        ({"affinity": affine([("k", "In", "a")], [("x", "In", "b")])}, None),
        ({"affinity": affine([("k", "NotIn", "a")])}, None),
        ({"affinity": affine([("k", "In", "ab")]), "nodeSelector": {"k": "b"}}, {"b"}),
    ],
)
def test_the_values_that_a_label_can_have(spec, values):
    assert possible(template(asking(), **spec), "k") == values


@pytest.mark.parametrize(
    ("selector", "pools", "mode"),
    [
        ({}, (), None),
        ({LABEL: "exclusive"}, (SHARED,), Mode.EXCLUSIVE),
        ({LABEL: "nonsense"}, (EVERYWHERE,), None),
        ({"kube-rdma.io/mode": "shared"}, (), Mode.SHARED),
        ({"kube-rdma.io/mode": "mixed"}, (), None),
        ({}, (SHARED,), None),
        ({"pool": "a"}, (SHARED, MULTI), Mode.SHARED),
        ({"pool": "a"}, (SHARED, EVERYWHERE), None),
        ({}, (EVERYWHERE,), Mode.EXCLUSIVE),
        ({}, (EVERYWHERE, MULTI), None),
        ({"pool": "c"}, (EVERYWHERE, MULTI), Mode.EXCLUSIVE),
    ],
)
def test_the_mode_of_all_nodes_on_which_the_pod_can_run(selector, pools, mode):
    pod = template(asking(), nodeSelector=selector)
    assert fixed_mode(pod, VKE, AdmissionFacts(pools)) is mode


def test_the_label_of_vke_says_nothing_of_other_resources():
    pod = template(asking("rdma/a", 1), nodeSelector={LABEL: "exclusive"})
    assert fixed_mode(pod, "rdma/a", AdmissionFacts()) is None
