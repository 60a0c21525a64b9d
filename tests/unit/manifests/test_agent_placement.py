"""Where agents run, and what cleans their nodes at the end: on the same nodes, as one says."""

import pytest

from kube_base.frozen import replace
from kube_rdma.install.installation import blueprints
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import PRESETS, merged

NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [1]}}
BESIDE = {"requiredDuringSchedulingIgnoredDuringExecution": [2]}
WITH_AGENT = [preset for preset in PRESETS if preset != "nvidia-operator"]


def templates(preset, **agent):
    """The templates of agents and of what follows them, by the name of their DaemonSet."""
    listed = [replace(one, for_helm=False) for part in blueprints().values() for one in part]
    made = filled(listed, merged({"preset": preset, "agent": agent}))
    return {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in made
        if one["kind"] == "DaemonSet"
    }


@pytest.mark.parametrize("preset", WITH_AGENT)
def test_an_affinity_takes_the_place_of_the_chart_s_own(preset):
    by_name = templates(preset, affinity={"nodeAffinity": NODES, "podAntiAffinity": BESIDE})
    leaving = by_name.pop("kube-rdma-leaving", None)
    (agent,) = by_name.values()
    assert agent["spec"]["affinity"] == {"nodeAffinity": NODES, "podAntiAffinity": BESIDE}
    # Nodes are cleaned wherever agents were, whoever else is there.
    assert leaving is None or leaving["spec"]["affinity"] == {"nodeAffinity": NODES}


@pytest.mark.parametrize("preset", WITH_AGENT)
@pytest.mark.parametrize("priority", ["rdma", ""])
def test_priority_and_annotations_are_those_of_the_cleaning_too(preset, priority):
    further = {"priorityClassName": priority, "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}}
    for template in templates(preset, **further).values():
        assert template["spec"].get("priorityClassName", "") == priority
        assert template["metadata"]["annotations"] == {"a": "b"}
        assert template["metadata"]["labels"]["c"] == "d"
    for template in templates(preset).values():
        assert template["spec"]["priorityClassName"] == "system-node-critical"
