"""What an administrator sets about admission, by the names of the chart's values."""

import pytest

from kube_rdma.admission.documents.pod_manifest import FIELDS, load_settings
from kube_rdma.install.rules.presets import DEFAULTS
from kube_rdma.model.admission import USUAL
from tests.kit.refusals import refusal


def test_nothing_set_is_what_is_usual():
    assert load_settings((), "x") == USUAL


def test_the_chart_s_own_values_are_what_is_usual():
    """Each of them is a name here, and says the same."""
    values = DEFAULTS["admission"]["pods"]
    lists = {name: value for name, value in values.items() if isinstance(value, str)}
    assert lists.keys() <= FIELDS.keys()
    assert load_settings((f"{name}={value}" for name, value in lists.items()), "x") == USUAL


def test_lists_have_commas_and_the_last_one_counts():
    settings = load_settings(("mgpuResources=a/b", "mgpuResources=c/d, e/f", "shmSize=16Gi"), "x")
    assert (settings.mgpu, settings.shm_size) == (("c/d", "e/f"), "16Gi")


@pytest.mark.parametrize("text", ["mgpuResource=a", "mgpuResources", "", "shmSize=much"])
def test_anything_else_is_refused(text):
    caught = refusal(load_settings, (text,), "--admission-set")
    assert caught.where == "--admission-set"
    assert caught.remedy
