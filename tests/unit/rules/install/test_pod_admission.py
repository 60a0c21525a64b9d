"""Policies for pods: made by choice, and such that they can lock nobody out.

What they refuse and complete a real API server shows (tests/lab/native/test_admission.py).
"""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.model.admission.facts import USUAL
from kube_rdma.programs.install.installation import assignment, objects
from kube_rdma.rules.install.presets import DEFAULTS, PRESETS

OWN = "pods-"


def made(*settings, preset="vke"):
    """The policies for pods, with their bindings."""
    values = [assignment(f"admission.pods.{one}") for one in settings]
    listed = objects(values, preset, "admission")
    return {
        (one["kind"], one["metadata"]["name"]): one["spec"]
        for one in listed
        if one["metadata"]["name"].startswith(OWN)
    }


def kinds(policies):
    return sorted(kind for kind, _ in policies)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_whose_documents_have_limits_check_them_by_themselves(preset):
    """No preset changes pods, and whoever has another rule switches the checks off."""
    by_itself = made(preset=preset)
    assert bool(by_itself) is (preset in ("ack", "vke"))
    assert by_itself == (made("check=true", preset=preset) if by_itself else {})
    assert not any(kind.startswith("Mutating") for kind, _ in by_itself)
    assert made("check=false", preset=preset) == {}


def test_each_half_is_chosen():
    checks = made("check=true")
    assert kinds(checks) == [
        *["ValidatingAdmissionPolicy"] * 2,
        *["ValidatingAdmissionPolicyBinding"] * 2,
    ]
    actions = {spec["policyName"]: spec["validationActions"] for spec in bindings(checks)}
    assert actions == {"pods-refused.kube-rdma.io": ["Deny"], "pods-warned.kube-rdma.io": ["Warn"]}
    assert kinds(made("check=false", "complete=true")) == [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ]


def bindings(policies):
    return [spec for (kind, _), spec in policies.items() if kind.endswith("Binding")]


def test_they_can_lock_nobody_out():
    """Errors are ignored; kube-system and the installation itself are never looked at."""
    policies = made("check=true", "complete=true")
    specs = [spec for (kind, _), spec in policies.items() if kind.endswith("Policy")]
    assert len(specs) == 3
    for spec in specs:
        assert spec["failurePolicy"] == "Ignore"
        constraints = spec["matchConstraints"]
        (expression,) = constraints["namespaceSelector"]["matchExpressions"]
        assert expression["operator"] == "NotIn"
        assert expression["values"] == ["kube-system", "kube-rdma-vke"]
        (rule,) = constraints["resourceRules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert all("failurePolicy" not in spec for spec in bindings(policies))


def test_what_counts_is_a_value():
    """By itself what the rules have, too."""
    settings = ("check=true", "mgpuResources=example.org/part,b/c", "vepfsStorageClasses=fast")
    text = json.dumps(list(made(*settings).values()))
    assert "'example.org/part,b/c'.split(',')" in text
    assert "'fast'.split(',')" in text
    usual = DEFAULTS["admission"]["pods"]
    assert usual["mgpuResources"].split(",") == list(USUAL.mgpu)
    assert usual["vepfsDrivers"].split(",") == list(USUAL.vepfs_drivers)


@pytest.mark.parametrize(
    "setting",
    ["mgpuResources=\"a' || true || 'b\"", "shmSize=lots", "vepfsDrivers=a b", "check=maybe"],
)
def test_a_value_that_would_be_part_of_an_expression_is_refused(setting):
    with pytest.raises(Refused) as caught:
        made(setting)
    assert "admission.pods." in caught.value.where
