"""The policy for an operator lets it write what its code writes.

tests/lab/native/test_operator_rights.py has the same at an API server.
"""

from kube_rdma.install.installation import objects
from kube_rdma.install.rules.admission import OPERATOR
from kube_rdma.operator.rules.placement import PLACE_LABELS, READY_LABEL
from kube_rdma.operator.upgrades import CLOSED_MARK


def test_an_operator_writes_its_labels_and_its_mark():
    """Without them no driver comes, and none goes."""
    (policy,) = (
        made
        for made in objects((), "nvidia-operator", "admission")
        if made["kind"] == "ValidatingAdmissionPolicy" and OPERATOR in made["metadata"]["name"]
    )
    (validation,) = policy["spec"]["validations"]
    for key in (*PLACE_LABELS.values(), READY_LABEL, CLOSED_MARK):
        assert f"'{key}'" in validation["expression"]
    fields = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}["fields"]
    assert "'metadata.labels'" in fields
