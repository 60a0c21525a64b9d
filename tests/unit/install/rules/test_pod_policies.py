"""Policies for pods: made by choice, and such that they can lock nobody out.

What they refuse and complete a real API server shows (tests/lab/native/test_admission.py).
"""

import ast
import json
from typing import get_args

import pytest

from kube_rdma.admission.documents import manifests
from kube_rdma.claims.parameters import MOST_LISTED, PLACES, ClaimParametersObject
from kube_rdma.install.installation import assignment, objects
from kube_rdma.install.rules.presets import DEFAULTS, PRESETS
from kube_rdma.model.admission import USUAL
from kube_rdma.model.claims.devices import DRIVER
from tests.kit.refusals import refusal

CLAIMS = "ValidatingAdmissionPolicy", "claims.kube-rdma.io"
OWN = ("pods-", "workloads-")


def made(*settings, preset="vke"):
    """The policies for pods, with their bindings."""
    values = [assignment(f"admission.pods.{one}") for one in settings]
    return {
        (one["kind"], one["metadata"]["name"]): one["spec"]
        for one in objects(values, preset, "admission")
        if one["metadata"]["name"].startswith(OWN)
    }


def kinds(policies):
    return sorted(kind for kind, _ in policies)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_whose_documents_have_limits_check_them_by_themselves(preset):
    """No preset changes pods, and whoever has another rule switches the checks off."""
    by_itself = made(preset=preset)
    assert bool(by_itself) is (preset in ("ack", "rails", "vke"))
    assert by_itself == (made("check=true", preset=preset) if by_itself else {})
    assert not any(kind.startswith("Mutating") for kind, _ in by_itself)
    assert made("check=false", preset=preset) == {}


def test_each_half_is_chosen():
    assert kinds(made("check=true")) == [
        *["ValidatingAdmissionPolicy"] * 2,
        *["ValidatingAdmissionPolicyBinding"] * 3,
    ]
    assert kinds(made("check=false", "complete=true")) == [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ]


def test_pods_alone_are_refused_and_workloads_are_warned_of():
    """A binding that refuses would stop an object that its author cannot write otherwise."""
    checks = made("check=true")
    acts = {}
    for (kind, name), spec in checks.items():
        if kind.endswith("Binding"):
            rules = spec.get("matchResources", {}).get("resourceRules", ())
            matched = {one for rule in rules for one in rule["resources"]}
            acts[name] = (spec["policyName"], spec["validationActions"], "pods" in matched)
            assert not matched or ("deployments" in matched) is ("pods" not in matched)
    assert acts == {
        "pods-refused.kube-rdma.io": ("pods-refused.kube-rdma.io", ["Deny"], True),
        "workloads-warned.kube-rdma.io": ("pods-refused.kube-rdma.io", ["Warn"], False),
        "pods-warned.kube-rdma.io": ("pods-warned.kube-rdma.io", ["Warn"], False),
    }


def test_every_kind_of_kubernetes_that_has_a_template_is_looked_at():
    """pod_places has the same list, for files."""
    policy = made("check=true")["ValidatingAdmissionPolicy", "pods-warned.kube-rdma.io"]
    matched = {
        (group, resource)
        for rule in policy["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {(group, f"{kind.lower()}s") for group, kind in manifests._OWN} <= matched


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
        pods = constraints["resourceRules"][0]
        assert (pods["resources"], pods["operations"]) == (["pods"], ["CREATE"])
    assert all("failurePolicy" not in spec for spec in bindings(policies))


def test_what_counts_is_a_value():
    """By itself what the rules have, too."""
    settings = ("check=true", "mgpuResources=example.org/part\\,b/c", "vepfsStorageClasses=fast")
    text = json.dumps(list(made(*settings).values()))
    assert "'example.org/part,b/c'.split(',')" in text
    assert "'fast'.split(',')" in text
    usual = DEFAULTS["admission"]["pods"]
    assert usual["mgpuResources"].split(",") == list(USUAL.mgpu)
    assert usual["vepfsDrivers"].split(",") == list(USUAL.vepfs_drivers)


def test_preset_rails_warns_of_its_own_shares_without_networks():
    """Its networks are there for each card; no other preset knows what its users' cards are."""
    networked = {
        preset: [one["expression"] for one in spec["variables"] if one["name"] == "networked"]
        for preset in PRESETS
        for (kind, name), spec in made("check=true", preset=preset).items()
        if (kind, name) == ("ValidatingAdmissionPolicy", "pods-warned.kube-rdma.io")
    }
    assert networked.pop("rails") == ["'rdma/nic'.split(',')"]
    assert {*map(tuple, networked.values())} == {("''.split(',')",)}


@pytest.mark.parametrize(
    "setting",
    ["mgpuResources=\"a' || true || 'b\"", "shmSize=lots", "vepfsDrivers=a b", "check=maybe"],
)
def test_a_value_that_would_be_part_of_an_expression_is_refused(setting):
    assert "admission.pods." in refusal(made, setting).where


def test_the_policy_for_claims_knows_the_fields_that_the_driver_reads():
    """It comes with claims, and judges the kinds that hold parameters."""
    listed = {
        enabled: [
            one["spec"]
            for one in objects([assignment(f"claims.enabled={enabled}")], "default", "admission")
            if (one["kind"], one["metadata"]["name"]) == CLAIMS
        ]
        for enabled in ("false", "true")
    }
    assert not listed["false"]
    (policy,) = listed["true"]
    variables = {one["name"]: one["expression"] for one in policy["variables"]}
    fields = ClaimParametersObject.model_fields.values()
    assert set(ast.literal_eval(variables["known"])) == {field.alias for field in fields}
    assert set(ast.literal_eval(variables["texts"])) <= set(ast.literal_eval(variables["known"]))
    assert f"== '{DRIVER}'" in variables["documents"]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert {f"{kind.lower()}{'e' * kind.endswith('s')}s" for kind in PLACES} == {*rule["resources"]}
    assert policy["failurePolicy"] == "Ignore"
    text = json.dumps(policy["validations"])
    for name in ("type", "mode"):
        words = get_args(get_args(ClaimParametersObject.model_fields[name].annotation)[0])
        assert all(f"'{word}'" in text for word in words)
    assert text.count(f"<= {MOST_LISTED}") == 2
