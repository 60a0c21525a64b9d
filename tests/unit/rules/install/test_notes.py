"""What is left to do after an installation, and which values had no effect."""

import pytest

from kube_rdma.rules.install.notes import (
    NO_CONFIG,
    NO_CONFIG_OF_POLICY,
    NO_POOL,
    VKE_VERSIONS,
    notes,
)
from kube_rdma.rules.install.presets import PRESETS, merged

POOLS = {"pools": [{"name": "rdma", "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]}}]}
CONFIG = {"agent": {"config": '{"mode": "hca"}'}}


@pytest.mark.parametrize(
    ("preset", "given_values", "sentences"),
    [
        ("vke", {}, (NO_POOL, VKE_VERSIONS)),
        ("vke", POOLS, (VKE_VERSIONS,)),
        ("vke", POOLS | CONFIG, (VKE_VERSIONS, NO_CONFIG)),
        ("nvidia-operator", CONFIG, (NO_CONFIG_OF_POLICY,)),
    ],
)
def test_a_preset_says_what_it_is_about(preset, given_values, sentences):
    assert notes(merged({"preset": preset, **given_values})) == sentences


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "vke"])
def test_other_presets_have_nothing_to_say(preset):
    """A configuration has its effect there, but where a policy deploys the agents."""
    assert not notes(merged({"preset": preset}))
    assert bool(notes(merged({"preset": preset, **CONFIG}))) is (preset == "nvidia-operator")
