"""Claims of pods that the API server refuses, and selectors of claims that match nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.admission.documents.pod_manifest import load
from kube_rdma.admission.rules.claims import ClaimSelector, foreign_selectors
from kube_rdma.admission.rules.findings import findings
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.claims.devices import DRIVER

NAMES = st.sampled_from(["resourceClaimName", "resourceClaimTemplateName"])


def told(entry, *used):
    """What is said of a pod with this entry of resourceClaims, whose container names claims."""
    container = {"name": "c", "resources": {"claims": [{"name": name} for name in used or ["nic"]]}}
    pod = {"spec": {"containers": [container], "resourceClaims": [{"name": "nic", **entry}]}}
    return [(one.is_error, one.problem, one.remedy) for one in findings(load(of_value(pod)))]


@given(st.sets(NAMES), st.booleans())
def test_a_claim_has_one_name_and_no_source(names, old):
    fields = dict.fromkeys(names, "card")
    every = told({"source": fields} if old else fields)
    assert len(every) == (old or len(names) != 1)
    for is_error, problem, remedy in every:
        assert is_error
        assert ("below source" in problem) == old
        if old and len(names) == 1:
            assert remedy == f"Write {next(iter(names))}: card beside name, and nothing else"


def test_a_container_names_a_claim_of_the_pod():
    entry = {"resourceClaimName": "card"}
    assert told(entry) == []
    ((is_error, problem, remedy),) = told(entry, "nic", "nics")
    assert is_error
    assert "container c names claim nics" in problem
    assert remedy == "Did you mean nic?"


CLASSES = {
    "rdma": f'device.driver == "{DRIVER}"',
    "dranet": 'device.driver == "dra.net" && true',
    "any": "device.allowMultiple",
}


@pytest.mark.parametrize(
    ("device_class", "expression", "told"),
    [
        ("rdma", 'device.attributes["dra.net"].rdma == true', "dra.net"),  # forty 25
        ("rdma", "device.driver=='gpu.nvidia.com'", "gpu.nvidia.com"),
        ("rdma", f'device.attributes["{DRIVER}"].mode == "shared"', ""),
        ("rdma", 'device.attributes["resource.kubernetes.io"].numaNode == 0', ""),
        ("dranet", f'device.attributes["{DRIVER}"].rail == 1', DRIVER),
        ("dranet", 'device.attributes["gce.dra.net"].rail == 1', ""),
        ("dranet", 'device.attributes["example.com"].rail == 1', ""),  # it may have it
        ("any", 'device.attributes["dra.net"].rdma', ""),
        ("unknown", 'device.attributes["dra.net"].rdma', ""),
    ],
)
def test_a_selector_reads_what_devices_of_its_class_have(device_class, expression, told):
    found = [*foreign_selectors([ClaimSelector(expression, "f:1", device_class)], CLASSES)]
    assert [one.subject for one in found] == (["f:1"] if told else [])
    assert all(f"what devices of {told} have, and class {device_class}" in f.problem for f in found)


def test_agents_can_publish_the_attributes_of_dranet():
    read, asked = 'device.attributes["dra.net"].rdma', 'device.driver == "dra.net"'
    for expression, can in ((read, True), (asked, False), (f"{asked} && {read}", False)):
        (found,) = foreign_selectors([ClaimSelector(expression, "f:1", "rdma")], CLASSES)
        assert ("none matches without --dranet-attributes" in found.problem) is can
