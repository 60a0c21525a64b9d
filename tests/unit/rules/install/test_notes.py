"""What is left to do after an installation, and which values had no effect."""

import pytest

from kube_rdma.rules.install.notes import (
    NO_CONFIG,
    NO_CONFIG_OF_POLICY,
    NO_DEFINITION,
    NO_IMAGE,
    NO_POOL,
    NO_RAIL_POOL,
    VKE_VERSIONS,
    notes,
)
from kube_rdma.rules.install.presets import PRESETS, merged

POOLS = {"pools": [{"name": "rdma", "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]}}]}
DEFINED = {"crds": {"networkAttachmentDefinitions": True}}
IMAGE = {"image": {"repository": "registry.example.com/a/b"}}
CONFIG = {"agent": {"config": '{"mode": "hca"}'}}


@pytest.mark.parametrize(
    ("preset", "given_values", "sentences"),
    [
        ("vke", {}, (NO_POOL, VKE_VERSIONS)),
        ("vke", POOLS, (VKE_VERSIONS,)),
        ("vke", POOLS | CONFIG, (VKE_VERSIONS, NO_CONFIG)),
        ("rails", {}, (NO_RAIL_POOL, NO_DEFINITION)),
        ("rails", POOLS | DEFINED, ()),
        ("nvidia-operator", CONFIG, (NO_CONFIG_OF_POLICY,)),
    ],
)
def test_a_preset_says_what_it_is_about(preset, given_values, sentences):
    assert notes(merged({"preset": preset, **IMAGE, **given_values})) == sentences


@pytest.mark.parametrize("preset", [name for name in PRESETS if name not in ("vke", "rails")])
def test_other_presets_have_nothing_to_say(preset):
    """A configuration has its effect there, but where a policy deploys the agents."""
    assert not notes(merged({"preset": preset, **IMAGE}))
    assert bool(notes(merged({"preset": preset, **IMAGE, **CONFIG}))) is (
        preset == "nvidia-operator"
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_an_image_that_no_registry_has_is_told_where_it_would_be_pulled(preset):
    assert NO_IMAGE in notes(merged({"preset": preset}))
    assert NO_IMAGE not in notes(merged({"preset": preset, "image": {"pullPolicy": "Never"}}))
