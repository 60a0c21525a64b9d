"""The values of the chart as people read them, with their defaults."""

import pytest

from kube_rdma.install.documents.installation import values
from kube_rdma.install.rules.presets import DISTRIBUTIONS, PRESETS, merged
from kube_rdma.model.install import UNSAID, ChartValue
from kube_rdma_tools.chart_values import completed

# What is said of a value's default is what an installation without that value has.

ALONE = [value for value in values() if not value.whole and not value.in_list]


def at(layer, path):
    for name in path.split("."):
        layer = layer[name]
    return layer


@pytest.mark.parametrize("value", ALONE, ids=lambda value: value.path)
def test_the_default_of_each_value_is_said(value):
    made = completed(value)
    assert (made.default is UNSAID) == (value.required or value.path == "global")


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("preset", PRESETS)
def test_it_is_what_an_installation_has(preset, distribution):
    """For presets and distributions, of which no value has both."""
    given = merged({"preset": preset, "distribution": distribution})
    for value in ALONE:
        made = completed(value)
        if made.default is UNSAID or value.path in ("preset", "distribution"):
            continue
        others = dict(made.others)
        layers = (f"preset {preset}", f"distribution {distribution}")
        said = [others[name] for name in layers if name in others]
        assert len(said) <= 1
        had = at(given, value.path)
        if isinstance(had, dict):  # objects are merged with everybody's
            assert had == {**made.default, **(said[0] if said else {})}
        else:
            assert had == (said or [made.default])[0]


def test_a_value_in_a_list_keeps_what_its_model_says():
    value = ChartValue("pools[].spec.blockSize", "blockSize is.", 32)
    assert completed(value) == value
