"""The table of docs/least-privilege.md: each right of the manifests, with what it is for."""

from kube_rdma_tools.rights.granted import granted
from kube_rdma_tools.rights.page import PAGE, page
from kube_rdma_tools.rights.reasons import REASONS


def test_each_resource_of_a_role_has_its_reason_and_no_reason_is_left_over():
    """A new right needs a phrase in rights/reasons.py."""
    wanted = {(right.role, right.resource) for right in granted()}
    assert wanted == {(role, resource) for role, listed in REASONS.items() for resource in listed}


def test_the_page_has_the_table_of_the_manifests():
    """`python -m kube_rdma_tools.rights.page` writes it."""
    text = PAGE.read_text()
    assert page(text) == text
