"""The chart's notes, which are written by hand: they say what `kube-rdma render` says."""

from pathlib import Path

import pytest

from kube_rdma.install.rules.notes import (
    DOCUMENTS_NAMES,
    NO_CONFIG,
    NO_CONFIG_OF_POLICY,
    NO_IMAGE,
    NO_LABEL,
    NO_POOL,
    NO_RAIL_POOL,
    NO_WEBHOOK,
    OF_DOCUMENTS,
    ONE_OPERATOR,
    READ_ONLY,
    READ_ONLY_NODES,
    VKE_VERSIONS,
)
from kube_rdma.install.rules.presets import DEFAULTS

NOTES = Path(__file__).parents[3] / "charts/kube-rdma/templates/NOTES.txt"


def test_missing_addresses_are_told_where_render_tells_them():
    """Of preset vke and of rails without pools; the real Helm prints it in lab/native."""
    text = NOTES.read_text()
    condition = '{{- if and (eq (.Values.preset | default "") "vke") (not $values.pools) }}'
    by_rail = "{{- if and $values.networks.install (not $values.pools) }}"
    before, told = text.split(condition)
    assert " ".join(told.partition("{{- end }}")[0].split()) == NO_POOL
    between, told = told.partition("{{- end }}")[2].split(by_rail)
    assert " ".join(told.partition("{{- end }}")[0].split()) == NO_RAIL_POOL
    assert "addresses" not in before + between + told.partition("{{- end }}")[2]


def test_an_image_that_no_registry_has_is_told_where_render_tells_it():
    """Under the condition that nothing but the default is named, and the image is to be pulled."""
    repository = DEFAULTS["image"]["repository"]
    condition = (
        f'{{{{- if and (eq $values.image.repository "{repository}") '
        '(ne $values.image.pullPolicy "Never") }}'
    )
    text = NOTES.read_text()
    assert " ".join(text.partition(condition)[2].partition("{{ end }}")[0].split()) == NO_IMAGE


def test_names_and_nodes_are_told_of_for_the_same_presets_and_distributions_as_in_render():
    text = " ".join(NOTES.read_text().split())
    pairs = " ".join(f'"{preset}" "{place}"' for preset, place in OF_DOCUMENTS.items())
    assert f"{{{{- $documents := dict {pairs} }}}}" in text.partition(DOCUMENTS_NAMES)[0]
    condition = text.partition(READ_ONLY_NODES)[0].rpartition("{{- if ")[2]
    listed = " ".join(f'"{name}"' for name in READ_ONLY)
    assert f"(list {listed})" in condition


@pytest.mark.parametrize(
    "sentence", [NO_LABEL, NO_WEBHOOK, ONE_OPERATOR, VKE_VERSIONS, NO_CONFIG, NO_CONFIG_OF_POLICY]
)
def test_each_sentence_of_render_s_is_there_once(sentence):
    assert " ".join(NOTES.read_text().split()).count(sentence) == 1
