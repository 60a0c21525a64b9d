"""The labels that Kubernetes recommends: on all objects and pods, as the API server takes them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.install.documents.values import Digest, Tag
from kube_rdma.install.installation import assignment, objects
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import PRESETS, merged
from kube_rdma.install.rules.release import GROUP, labelled, version_label
from kube_rdma.model.install import Blueprint, Spread

LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")  # apimachinery validation
VALUES = merged({"preset": "vke", "agent": {"podLabels": {"team": "a", f"{GROUP}name": "b"}}})


def form(word):
    """Texts that a value of the installation may be."""
    return st.from_regex(word.__metadata__[0].form, fullmatch=True)


@given(form(Tag), form(Digest))
def test_a_version_is_a_label(tag, digest):
    version = version_label(tag, digest)
    assert len(version) <= 63
    assert LABEL.fullmatch(version)
    assert digest.replace(":", "-").startswith(version) if digest else version in tag


@pytest.mark.parametrize("preset", PRESETS)
def test_what_belongs_together_is_found_by_them(preset):
    """Whoever renders without Helm has an instance too: the preset, or the release's own name."""
    for fullname, instance in (("", preset), ("rdma-a", "rdma-a")):
        layers = [assignment("image.tag=1.2.3")]
        layers += [assignment(f"fullnameOverride={fullname}")] if fullname else []
        for made in objects(layers, preset):
            labels = made["metadata"]["labels"]
            wanted = {
                "name": "kube-rdma",
                "instance": instance,
                "version": "1.2.3",
                "part-of": "kube-rdma",
                "managed-by": "kube-rdma",
            }
            assert {f"{GROUP}{key}": value for key, value in wanted.items()}.items() <= (
                labels.items()
            )
            assert labels[f"{GROUP}component"]


def test_they_stand_beside_the_labels_that_an_object_has():
    """In front of a user's own, which change none of them."""
    template = {"metadata": {"labels": {"name": "x", "more": Spread("agent.podLabels")}}}
    body = {"metadata": {"name": "x", "labels": {"own": "y"}}, "spec": {"template": template}}
    (made,) = filled([labelled(Blueprint(body, component="agent"), "workloads")], VALUES)
    assert made["metadata"]["labels"]["own"] == "y"
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert (labels["name"], labels["team"]) == ("x", "a")
    assert (labels[f"{GROUP}name"], labels[f"{GROUP}component"]) == ("kube-rdma", "agent")


def test_without_a_component_of_its_own_an_object_has_its_part_s():
    (made,) = filled([labelled(Blueprint({"metadata": {"name": "x"}}), "pools")], VALUES)
    assert made["metadata"]["labels"][f"{GROUP}component"] == "pools"
