"""The chart's notes, which are written by hand: they say what `kube-rdma render` says."""

from pathlib import Path

import pytest

from kube_rdma.rules.install.notes import (
    NO_CONFIG,
    NO_CONFIG_OF_POLICY,
    NO_IMAGE,
    NO_POOL,
    NO_RAIL_POOL,
    VKE_VERSIONS,
)
from kube_rdma.rules.install.presets import DEFAULTS

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


@pytest.mark.parametrize("sentence", [VKE_VERSIONS, NO_CONFIG, NO_CONFIG_OF_POLICY])
def test_each_sentence_of_render_s_is_there_once(sentence):
    assert " ".join(NOTES.read_text().split()).count(sentence) == 1
