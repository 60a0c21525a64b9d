"""What a version of Kubernetes does not have is left out, and what it has stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.install.installation import blueprints
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import merged
from kube_rdma.install.rules.release import SINCE, lacking

forms = st.sampled_from(["1.{}", "v1.{}", "v1.{}.3", "v1.{}.5-gke.1100", "1.{}.2+k3s1"])


@given(st.integers(0, 60), forms)
def test_every_form_of_a_version_has_what_its_minor_version_has(minor, form):
    values = merged({"preset": "vke", "kubernetesVersion": form.format(minor)})
    assert {name: values["platform"][name] for name in SINCE} == {
        name: minor >= since for name, since in SINCE.items()
    }


@pytest.mark.parametrize("values", [{}, {"kubernetesVersion": ""}, {"kubernetesVersion": None}])
def test_without_a_version_it_is_the_newest(values):
    assert all(merged({"preset": "vke", **values})["platform"][name] for name in SINCE)


@pytest.mark.parametrize(
    ("preset", "pods", "version", "kinds"),
    [
        ("vke", {}, "1.28", ["ValidatingAdmissionPolicy"]),
        ("vke", {}, "1.30", []),
        ("ack", {}, "1.28", ["ValidatingAdmissionPolicy"]),
        ("ack", {"check": False}, "1.28", []),
        ("scc", {}, "1.28", []),
        ("scc", {"check": True}, "1.28", ["ValidatingAdmissionPolicy"]),
        ("scc", {"complete": True}, "1.35", ["MutatingAdmissionPolicy"]),
        ("scc", {"complete": True}, "1.36", []),
    ],
)
def test_what_is_asked_for_and_left_out_is_said(preset, pods, version, kinds):
    given_values = {
        "preset": preset,
        "kubernetesVersion": version,
        "admission": {"pods": pods},
    }
    sentences = lacking(merged(given_values))
    assert [sentence.split()[4].rstrip(",") for sentence in sentences] == kinds
    assert all(sentence.startswith(f"Kubernetes {version} has no ") for sentence in sentences)


@pytest.mark.parametrize(("version", "count"), [("1.24", 1), ("1.25", 0), ("", 0)])
def test_rules_of_definitions_are_left_out_where_clients_refuse_them(version, count):
    """A note says so, where there are definitions at all."""
    values = merged({"preset": "vke", "kubernetesVersion": version})
    definitions = list(filled(blueprints()["definitions"], values))
    assert ("x-kubernetes-validations" in str(definitions)) is not bool(count)
    told = [sentence for sentence in lacking(values) if "rules of definitions" in sentence]
    assert len(told) == count
    values["crds"]["install"] = False
    assert not [sentence for sentence in lacking(values) if "rules of definitions" in sentence]


def test_a_version_that_is_too_old_is_named():
    (first, *_) = lacking(merged({"preset": "vke", "kubernetesVersion": "v1.20.15-vke.18"}))
    assert first == "Kubernetes v1.20.15-vke.18 is older than 1.22, which kube-rdma needs."
    assert not lacking(merged({"preset": "scc", "kubernetesVersion": "1.22"}))
