"""Layers of values, and the sentences about them."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kube_rdma.install.rules import notes
from kube_rdma.install.rules.presets import DEFAULTS, DISTRIBUTIONS, PRESETS, merged, over
from kube_rdma.model.pools import DATA_FILES
from kube_rdma.pools.documents.config import parse

names = st.sampled_from("abc")
layers = st.recursive(
    st.dictionaries(names, st.integers() | st.lists(st.integers(), max_size=2), max_size=3),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def leaves(value, path=()):
    """Every path that ends in something else than an object with fields."""
    if isinstance(value, dict) and value:
        return {leaf for key, inner in value.items() for leaf in leaves(inner, (*path, key))}
    return {path}


@given(layers, layers)
def test_what_the_later_layer_says_counts(below, above):
    both = over(below, above)
    for path in leaves(above) - {()}:
        value, expected = both, above
        for key in path:
            value, expected = value[key], expected[key]
        assert value == expected or (expected == {} and isinstance(value, dict))
    assert over(below, {}) == below
    assert over({}, above) == above


@given(layers, layers, layers)
def test_layers_may_be_joined_in_any_grouping(first, second, third):
    """Helm joins the files of a user first, and lays them over the preset then."""
    assume(agree(first, second) and agree(second, third) and agree(first, third))
    assert over(over(first, second), third) == over(first, over(second, third))


def agree(left, right):
    """Whether no field is an object in one and something else in the other."""
    if isinstance(left, dict) and isinstance(right, dict):
        return all(agree(left[key], right[key]) for key in left.keys() & right.keys())
    return isinstance(left, dict) == isinstance(right, dict)


def test_no_layer_has_a_value_that_the_first_one_does_not_name():
    """Else a template would ask for what other presets lack."""
    for layer in (*PRESETS.values(), *DISTRIBUTIONS.values()):
        for path in leaves(layer):
            value = DEFAULTS
            for key in path:
                if value == {}:
                    break  # node labels and the like are anybody's
                assert isinstance(value, list | dict)
                value = value if isinstance(value, list) else value[key]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("preset", PRESETS)
def test_whoever_installs_has_the_last_word(preset, distribution):
    given_values = {"preset": preset, "distribution": distribution, "image": {"tag": "mine"}}
    values = merged(given_values)
    assert values["image"] == DEFAULTS["image"] | {"tag": "mine"}
    assert values["host"].keys() == DEFAULTS["host"].keys()


def test_presets_of_other_plugins_alone_open_what_manages_a_fabric():
    """Of those with a configuration of their own."""
    configs = {name: merged({"preset": name})["agent"]["config"] for name in PRESETS}
    opening = {
        name
        for name, text in configs.items()
        if text
        and any(set(p.device_files) - set(DATA_FILES) for p in parse(text.encode(), "").pools)
    }
    assert opening == {"ack", "scc", "nvidia"}


# What is left to do after an installation, and which values had no effect.

POOLS = {"pools": [{"name": "rdma", "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]}}]}
DEFINED = {"crds": {"networkAttachmentDefinitions": True}}
LABELLED = {"labeller": {"enabled": True}}
SERVED = {"crds": {"nicClusterPolicies": False}}
CONFIG = {"agent": {"config": '{"mode": "hca"}'}}


@pytest.mark.parametrize(
    ("preset", "given_values", "sentences"),
    [
        ("vke", {}, (notes.NO_POOL, notes.VKE_VERSIONS)),
        ("vke", POOLS, (notes.VKE_VERSIONS,)),
        ("vke", POOLS | CONFIG, (notes.VKE_VERSIONS, notes.NO_CONFIG)),
        ("rails", {}, (notes.NO_RAIL_POOL, notes.NO_DEFINITION)),
        ("rails", POOLS | DEFINED, ()),
        ("ack", {}, (notes.DOCUMENTS_NAMES,)),
        ("efa", {"admission": {"webhook": {"secret": "keys"}}}, (notes.NO_WEBHOOK,)),
        ("efa", {"admission": {"webhook": {"certificate": "own"}}}, (notes.NO_WEBHOOK,)),
        ("efa", {"admission": {"webhook": {"certificate": "", "secret": ""}}}, ()),
        ("ack", {"fullnameOverride": "rdma"}, ()),
        ("ack", {"namespace": {"name": "rdma"}}, ()),
        ("scc", {}, (notes.DOCUMENTS_NAMES,)),
        ("nvidia", {}, (notes.DOCUMENTS_NAMES, notes.NO_LABEL)),
        ("nvidia", LABELLED, (notes.DOCUMENTS_NAMES,)),
        ("nvidia-operator", {}, (notes.DOCUMENTS_NAMES, notes.ONE_OPERATOR, notes.NO_LABEL)),
        ("nvidia-operator", LABELLED | SERVED, (notes.DOCUMENTS_NAMES,)),
        (
            "nvidia-operator",
            LABELLED | SERVED | CONFIG | {"distribution": "talos"},
            (notes.DOCUMENTS_NAMES, notes.READ_ONLY_NODES, notes.NO_CONFIG_OF_POLICY),
        ),
    ],
)
def test_a_preset_says_what_it_is_about(preset, given_values, sentences):
    assert notes.notes(merged({"preset": preset, **given_values})) == sentences


@pytest.mark.parametrize("preset", ["default", "rdma-ib", "efa", "ib"])
@pytest.mark.parametrize("given_values", [{}, CONFIG, {"distribution": "talos"}], ids=str)
def test_other_presets_have_nothing_to_say(preset, given_values):
    """A configuration has its effect there."""
    assert not notes.notes(merged({"preset": preset, **given_values}))
