"""What a version of Kubernetes does not have is left out, and what it has stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.rules.install.kubernetes_version import SINCE, lacking
from kube_rdma.rules.install.presets import merged

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
        ("ack", {}, "1.28", []),
        ("ack", {"check": True}, "1.28", ["ValidatingAdmissionPolicy"]),
        ("ack", {"complete": True}, "1.35", ["MutatingAdmissionPolicy"]),
        ("ack", {"complete": True}, "1.36", []),
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
