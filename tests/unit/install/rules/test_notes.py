"""What is left to do after an installation, and which values had no effect."""

import pytest

from kube_rdma.install.rules.notes import (
    DOCUMENTS_NAMES,
    NO_CONFIG,
    NO_CONFIG_OF_POLICY,
    NO_DEFINITION,
    NO_IMAGE,
    NO_LABEL,
    NO_POOL,
    NO_RAIL_POOL,
    NO_WEBHOOK,
    ONE_OPERATOR,
    READ_ONLY_NODES,
    VKE_VERSIONS,
    notes,
)
from kube_rdma.install.rules.presets import PRESETS, merged

POOLS = {"pools": [{"name": "rdma", "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]}}]}
DEFINED = {"crds": {"networkAttachmentDefinitions": True}}
IMAGE = {"image": {"repository": "registry.example.com/a/b"}}
LABELLED = {"labeller": {"enabled": True}}
SERVED = {"crds": {"nicClusterPolicies": False}}
CONFIG = {"agent": {"config": '{"mode": "hca"}'}}


@pytest.mark.parametrize(
    ("preset", "given_values", "sentences"),
    [
        ("vke", {}, (NO_POOL, VKE_VERSIONS)),
        ("vke", POOLS, (VKE_VERSIONS,)),
        ("vke", POOLS | CONFIG, (VKE_VERSIONS, NO_CONFIG)),
        ("rails", {}, (NO_RAIL_POOL, NO_DEFINITION)),
        ("rails", POOLS | DEFINED, ()),
        ("ack", {}, (DOCUMENTS_NAMES,)),
        ("efa", {"admission": {"webhook": {"secret": "keys"}}}, (NO_WEBHOOK,)),
        ("efa", {"admission": {"webhook": {"certificate": "own"}}}, (NO_WEBHOOK,)),
        ("efa", {"admission": {"webhook": {"certificate": "", "secret": ""}}}, ()),
        ("ack", {"fullnameOverride": "rdma"}, ()),
        ("ack", {"namespace": {"name": "rdma"}}, ()),
        ("scc", {}, (DOCUMENTS_NAMES,)),
        ("nvidia", {}, (DOCUMENTS_NAMES, NO_LABEL)),
        ("nvidia", LABELLED, (DOCUMENTS_NAMES,)),
        ("nvidia-operator", {}, (DOCUMENTS_NAMES, ONE_OPERATOR, NO_LABEL)),
        ("nvidia-operator", LABELLED | SERVED, (DOCUMENTS_NAMES,)),
        (
            "nvidia-operator",
            LABELLED | SERVED | CONFIG | {"distribution": "talos"},
            (DOCUMENTS_NAMES, READ_ONLY_NODES, NO_CONFIG_OF_POLICY),
        ),
    ],
)
def test_a_preset_says_what_it_is_about(preset, given_values, sentences):
    assert notes(merged({"preset": preset, **IMAGE, **given_values})) == sentences


@pytest.mark.parametrize("preset", ["default", "rdma-ib", "efa", "ib"])
@pytest.mark.parametrize("given_values", [{}, CONFIG, {"distribution": "talos"}], ids=str)
def test_other_presets_have_nothing_to_say(preset, given_values):
    """A configuration has its effect there."""
    assert not notes(merged({"preset": preset, **IMAGE, **given_values}))


@pytest.mark.parametrize("preset", PRESETS)
def test_an_image_that_no_registry_has_is_told_where_it_would_be_pulled(preset):
    assert NO_IMAGE in notes(merged({"preset": preset}))
    assert NO_IMAGE not in notes(merged({"preset": preset, "image": {"pullPolicy": "Never"}}))
