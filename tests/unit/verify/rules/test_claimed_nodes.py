"""Which nodes take part by claims: what a pod asks for, and why a copy was not placed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.model.claims.claim import DeviceClass
from kube_rdma.verify.rules import copies

HELD = "Cards that claims of other pods hold are not measured."


def pod(*limits, claims=()):
    containers = [{"name": "c", "resources": {"limits": one}} for one in limits]
    return {"spec": {"containers": containers, "resourceClaims": list(claims)}}


def test_a_pod_asks_for_what_its_containers_ask_for_together():
    asked = pod({"rdma/hca": 1, "cpu": "2"}, {"rdma/hca": "1k", "nvidia.com/gpu": "8"})
    assert copies.amounts(asked) == {"rdma/hca": 1001, "nvidia.com/gpu": 8}
    assert copies.amounts(pod({"rdma/hca": "much"})) == {"rdma/hca": 1}


def test_templates_are_named_once_and_claims_by_name_are_refused():
    by_template = {"name": "a", "resourceClaimTemplateName": "nics"}
    assert copies.claim_templates(pod({}, claims=[by_template, by_template]), "f") == ("nics",)
    with pytest.raises(Refused, match="cannot share the claim mine"):
        copies.claim_templates(pod({}, claims=[{"name": "a", "resourceClaimName": "mine"}]), "f")


def test_a_class_stands_for_its_resource_and_for_its_own_name():
    classes = (DeviceClass("hcas", (), "rdma/hca"), DeviceClass("others"))
    (claim,) = copies.claims_for("rdma/hca", 3, classes)
    assert claim.requests[0].choices[0].count == 3
    (claim,) = copies.claims_for("deviceclass.resource.kubernetes.io/others", 1, classes)
    assert claim.requests[0].choices[0].device_class == "others"
    assert not copies.claims_for("rdma/other", 1, classes)


@given(
    shares=st.dictionaries(st.sampled_from(["a/a", "b/b"]), st.sampled_from(["0", "8"])),
    served=st.sets(st.sampled_from(["a/a", "b/b"])),
    unmet=st.sampled_from(["", "claim template nics: it lacks 1 of 1 devices"]),
    cordoned=st.booleans(),
)
def test_a_node_takes_part_if_shares_or_claims_give_all(shares, served, unmet, cordoned):
    node = {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": shares},
    }
    offers = copies.ClaimOffers({name: {"n": ""} for name in served}, {"n": unmet})
    ((name, why),) = copies.fitting([node], (), ("a/a", "b/b"), offers)
    given_all = all(shares.get(one, "0") != "0" or one in served for one in ("a/a", "b/b"))
    assert name == "n"
    assert (why == "") is (given_all and not unmet and not cordoned)


def waiting(message):
    entry = {"type": "PodScheduled", "status": "False", "message": message}
    return {"status": {"phase": "Pending", "conditions": [entry]}}


def test_a_copy_whose_cards_others_hold_says_that_they_are_not_measured():
    why = "0/2 nodes are available: 1 cannot allocate all claims."
    assert copies.not_started(waiting(why)) == f"{why} {HELD}"
    assert copies.not_started(waiting("Insufficient cpu")) == "Insufficient cpu"
