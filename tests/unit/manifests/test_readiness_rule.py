"""The NodeReadinessRule of docs/repair.md, by what the definition of v0.5.0 allows.

The Node Readiness Controller is not available to the lab: its rule is checked by hand against the
definition, and here for what follows from kube-rdma.
"""

from kube_rdma.adapters.cluster.kinds.node import CARDS_HEALTHY
from tests.kit.on_page import on_page

PREFIX = "readiness.k8s.io/"  # of every taint key that the definition allows
FIELDS = {"conditions", "enforcementMode", "nodeSelector", "taint"}  # all that are required


def test_the_rule_of_the_page_taints_by_the_condition_that_agents_write():
    rule = on_page("docs/repair.md", "NodeReadinessRule")
    spec = rule["spec"]
    assert rule["apiVersion"] == "readiness.node.x-k8s.io/v1alpha1"
    assert spec.keys() == FIELDS
    assert spec["conditions"] == [{"type": CARDS_HEALTHY, "requiredStatus": "True"}]
    assert spec["enforcementMode"] == "continuous"
    assert spec["taint"]["key"].startswith(PREFIX)
    assert spec["taint"]["effect"] in {"NoSchedule", "PreferNoSchedule", "NoExecute"}
