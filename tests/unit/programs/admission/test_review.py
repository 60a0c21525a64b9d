"""Requests of an API server, good and bad: each gets an answer, and none is a crash."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.api.admission.review import MOST_BYTES
from kube_rdma.programs.admission.review import completed, validated
from tests.kit.admission import VKE, asking, blocks, container, pod

TWO = blocks("rdma", "rdma")


def review(value, **fields):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "team"}
    request |= {"object": value, **fields}
    return json.dumps({"kind": "AdmissionReview", "request": request}).encode()


def response(body):
    answer = json.loads(body)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert answer["response"]["uid"] == "u"
    return answer["response"]


def test_a_pod_without_fault_is_admitted_in_silence():
    assert response(validated(review(pod(asking(), annotations=TWO)))) == {
        "uid": "u",
        "allowed": True,
    }


def test_a_refusal_has_every_fault_with_field_and_remedy():
    slices = asking("vke.volcengine.com/mgpu-core", 1, name="slices")
    made = response(validated(review(pod(asking(VKE, 1), slices, annotations=TWO))))
    assert not made["allowed"]
    message = made["status"]["message"]
    assert 'spec.containers[1].resources.limits."vke.volcengine.com/mgpu-core": ' in message
    assert 'metadata.annotations."k8s.volcengine.com/pod-networks": the pod has 2 bl' in message
    assert message.count("Ask for") == 2 or "Write 1 block" in message
    (warning,) = made["warnings"]
    assert warning.startswith("kube-rdma: spec.containers[0]")


def test_what_is_completed_is_a_patch():
    made = response(completed(review(pod(asking("rdma/a", 1)))))
    assert made["patchType"] == "JSONPatch"
    (operation,) = json.loads(base64.b64decode(made["patch"]))
    assert operation == {
        "op": "add",
        "path": "/spec/containers/0/securityContext",
        "value": {"capabilities": {"add": ["IPC_LOCK"]}},
    }
    assert response(completed(review(pod(container())))) == {"uid": "u", "allowed": True}


BAD = pod(asking(VKE, 4), annotations=TWO)
OTHERS = {
    "another kind": {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
    "an update": {"operation": "UPDATE"},
    "a deletion": {"operation": "DELETE", "object": None},
    "a part of a pod": {"subResource": "ephemeralcontainers"},
    "no kind": {"kind": None},
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_new_pod_is_admitted(name):
    assert not response(validated(review(BAD)))["allowed"], "else nothing is shown"
    for act in (validated, completed):
        assert response(act(review(BAD, **OTHERS[name]))) == {
            "uid": "u",
            "allowed": True,
        }


def test_a_pod_of_no_form_is_admitted_with_a_warning():
    """The API server itself judges forms; a pod is not refused because kube-rdma cannot read it."""
    made = response(validated(review({"spec": {"containers": 7}})))
    assert made["allowed"]
    (warning,) = made["warnings"]
    assert "did not judge this pod: spec.containers: 7 is not a list" in warning


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"null",
        b"[]",
        b'{"request": 7}',
        b'{"request": {}}',
        b'{"request": {"uid": 7}}',
        b" " * (MOST_BYTES + 1),
    ],
    ids=range(9),
)
def test_what_is_no_request_is_refused(body):
    for act in (validated, completed):
        with pytest.raises(Refused) as caught:
            act(body)
        assert "AdmissionReview" in caught.value.remedy


def test_many_warnings_are_counted():
    """A pod of hundreds of containers would else be answered with hundreds of sentences."""
    many = pod(*(asking(VKE, 1, name=f"c{n}") for n in range(300)), annotations=blocks("rdma"))
    made = response(validated(review(many)))
    assert len(made["warnings"]) == 11
    assert made["warnings"][-1] == "kube-rdma: and 290 more warnings"


KEYS = st.sampled_from(
    [
        *("metadata", "annotations", "spec", "containers", "resources", "limits", VKE),
        *("kube-rdma.io/complete", "k8s.volcengine.com/pod-networks", "securityContext"),
        *("capabilities", "add", "volumes", "volumeMounts", "initContainers", "affinity"),
    ]
)
WHOLE = st.integers(-(2**63), 2**63 - 1)  # as Go reads them
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), WHOLE, st.text(max_size=8), st.just("[{")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=30,
)


@given(VALUES)
def test_no_object_is_a_crash(value):
    for act in (validated, completed):
        assert isinstance(response(act(review(value)))["allowed"], bool)


@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_body_is_a_crash(body):
    try:
        validated(body)
    except Refused:
        return
    assert b"uid" in body


HEAD = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters"}
BASE = "opaque.parameters.mtu: 70000 is too large. Write 65535 or less."


def configured(kind, version="v1", *, driver="rdma.kube-rdma.io", mtu=70000, **fields):
    """A request about an object that configures devices."""
    opaque = {"opaque": {"driver": driver, "parameters": HEAD | {"mtu": mtu}}}
    devices = {"requests": [{"name": "card"}], "config": [opaque]}
    spec = {
        "ResourceClaim": {"devices": devices},
        "ResourceClaimTemplate": {"spec": {"devices": devices}},
        "DeviceClass": {"config": [opaque]},
    }[kind]
    api = {"group": "resource.k8s.io", "version": version, "kind": kind}
    return review({"kind": kind, "metadata": {"name": "a"}, "spec": spec}, kind=api, **fields)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("ResourceClaim", "spec.devices.config[0]"),
        ("ResourceClaimTemplate", "spec.spec.devices.config[0]"),
        ("DeviceClass", "spec.config[0]"),
    ],
)
def test_parameters_of_claims_and_classes_are_judged(kind, place, version):
    made = response(validated(configured(kind, version)))
    assert made["status"]["message"] == f"{place}.{BASE}"
    good = response(validated(configured(kind, version, mtu=9000)))
    assert good == {"uid": "u", "allowed": True}
    assert response(completed(configured(kind, version))) == {"uid": "u", "allowed": True}


def test_a_claim_that_is_stored_can_go_on():
    """Its finalizers and status change whatever it says; with another spec it is judged."""
    stored = json.loads(configured("DeviceClass"))["request"]["object"]
    same = configured("DeviceClass", operation="UPDATE", oldObject=stored)
    assert response(validated(same))["allowed"]
    other = configured("DeviceClass", operation="UPDATE", oldObject=stored | {"spec": {}})
    assert not response(validated(other))["allowed"]
    for fields in ({"subResource": "status"}, {"operation": "DELETE", "object": None}):
        assert response(validated(configured("ResourceClaim", **fields)))["allowed"]


def test_configuration_of_other_drivers_is_theirs():
    made = response(validated(configured("ResourceClaim", driver="rdma.kube-rdma.io.example.com")))
    assert "the driver is" in made["status"]["message"]
    other = json.loads(configured("ResourceClaim"))
    (entry,) = other["request"]["object"]["spec"]["devices"]["config"]
    entry["opaque"] = {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}
    assert response(validated(json.dumps(other).encode()))["allowed"]


@given(
    st.recursive(
        st.none() | st.integers(0, 9) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(("spec", "devices", "config", "opaque", "driver", "parameters")),
                inner,
            )
        ),
    )
)
def test_whatever_a_claim_is_it_is_answered(value):
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
    response(validated(review(value, kind=kind)))
