"""Who must be gone before the agents go."""

import pytest

from kube_base.frozen import replace
from kube_rdma.install.rules.release import still_needed
from kube_rdma.model.kubernetes import PodState

NOTE = "kube-rdma.io/network-status"
POD = PodState("team", "a", "1", annotations=((NOTE, "[]"),), phase="Running")


@pytest.mark.parametrize(
    ("pod", "needed"),
    [
        (POD, True),
        (replace(POD, phase="Pending"), True),
        (replace(POD, deleting=True), True),
        (replace(POD, phase="Succeeded"), False),
        (replace(POD, phase="Failed"), False),
        (replace(POD, annotations=(("another.io/network-status", "[]"),)), False),
    ],
)
def test_a_pod_with_networks_that_has_not_ended_needs_an_agent(pod, needed):
    assert bool(still_needed([pod], NOTE)) is needed


def test_the_refusal_names_some_of_many():
    pods = [replace(POD, name=name) for name in "edcba"]
    refusal = still_needed(pods, NOTE)
    assert "team/a, team/b, team/c and 2 more" in str(refusal)
