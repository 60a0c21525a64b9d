"""The values of the chart as people read them, with their defaults."""

import pytest
import yaml

from kube_rdma.install.documents.installation import values
from kube_rdma.install.rules.presets import DISTRIBUTIONS, PRESETS, merged
from kube_rdma.model.install import UNSAID, ChartValue
from kube_rdma_tools.chart_values import completed, left_out, readme, values_file

REPLICAS = ChartValue("controller.replicas", "replicas is how many.", 2)


@pytest.mark.parametrize(
    ("default", "others", "sentence"),
    [
        (2, (), "Left out: 2."),
        ("", (), 'Left out: "".'),
        ({"a": [1]}, (), 'Left out: {"a": [1]}.'),
        ("", (("preset ack", "one\ntwo\n"),), 'Left out: ""; a text of its own with preset ack.'),
        (
            False,
            (("preset ack", True), ("preset vke", "x"), ("preset ib", True)),
            "Left out: false; true with preset ack or ib; x with preset vke.",
        ),
        (
            "/a",
            (("preset ib", "/b"), ("distribution k3s", "/b"), ("distribution rke2", "/b")),
            "Left out: /a; /b with preset ib or distribution k3s or rke2.",
        ),
    ],
)
def test_who_has_which_default_is_said(default, others, sentence):
    assert left_out(ChartValue("a", "a is.", default, others)) == sentence


def test_where_nobody_says_it_there_is_no_sentence():
    """A required value, an object, a value of a list's entries."""
    assert not left_out(ChartValue("preset", "preset is.", required=True))
    assert not left_out(ChartValue("pools[].probe", "probe is.", False))


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (REPLICAS, "| `controller.replicas` | `2` | replicas is how many. |"),
        (ChartValue("a", "a is b|c.", required=True), "| `a` | required | a is b\\|c. |"),
        (ChartValue("a", "a has.", {"b": 1}, whole=True), "| `a` |  | a has. |"),
        (ChartValue("a[].b", "b is.", None), "| `a[].b` |  | b is. |"),
        (ChartValue("a[].b", "b is.", False), "| `a[].b` | `false` | b is. |"),
        (
            ChartValue("a", "a is, see docs/ip.md.", 0),
            "| `a` | `0` | a is, see [docs/ip.md](../../docs/ip.md). |",
        ),
    ],
)
def test_a_value_is_a_row(value, row):
    assert readme([value]).splitlines()[-1] == row


def test_values_yaml_has_every_default_and_leaves_to_presets_what_they_decide():
    values = [
        ChartValue("preset", "preset is.", required=True),
        ChartValue("controller", "controller has.", whole=True),
        REPLICAS,
        ChartValue("controller.name", "name is.", "a", (("preset ib", "b"),)),
        ChartValue("controller.secret", "secret is.", ""),
        ChartValue("controller.limits", "limits are.", {"a": {"b": "1"}}),
        ChartValue("pools", "pools lists.", [{"name": "rdma"}]),
        ChartValue("pools[].name", "name is.", required=True),
        ChartValue("global", "global is."),
    ]
    text = values_file(values)
    assert yaml.safe_load(text) == {
        "preset": None,
        "controller": {"replicas": 2, "name": None, "secret": "", "limits": {"a": {"b": "1"}}},
        "pools": [{"name": "rdma"}],
    }
    lines = text.splitlines()
    assert "  # name is. Left out: a; b with preset ib." in lines
    assert max(map(len, lines)) <= 100


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
