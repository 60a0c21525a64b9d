"""The labeller as a value of the installation: the DaemonSet of labels.yaml, in any namespace."""

from pathlib import Path

import pytest

from kube_rdma.install.installation import assignment, objects
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.rules import judge
from tests.kit.policies import NFD_RIGHT
from tests.unit.manifests.test_installation import documents, narrows

ROOT = Path(__file__).parents[3]
LABELLER = "kube-rdma-labels"


def daemon_set(made, name):
    (one,) = [
        each for each in made if (each["kind"], each["metadata"]["name"]) == ("DaemonSet", name)
    ]
    return one


@pytest.mark.parametrize("preset", ["nvidia", "nvidia-operator", "default"])
def test_the_labeller_of_a_value_is_that_of_labels_yaml(preset):
    """On every node, whatever label the agents need, and with the image of the installation.

    But its type of SELinux: that of labels.yaml keeps it from the labels of the distribution.
    """
    made = objects([assignment("labeller.enabled=true")], preset)
    value = daemon_set(made, LABELLER)["spec"]["template"]["spec"]
    file = daemon_set(documents(ROOT / "examples/s3-network/labels.yaml"), "node-labels")
    expected = file["spec"]["template"]["spec"]
    expected["containers"][0]["securityContext"]["seLinuxOptions"] = {"type": "spc_t"}
    assert value == expected
    assert narrows(made, *NFD_RIGHT)
    assert LABELLER not in str(objects((), preset))


@pytest.mark.parametrize("preset", ["ack", "scc", "efa"])
def test_no_labeller_is_where_no_account_is(preset):
    assert objects([assignment("labeller.enabled=true")], preset) == objects((), preset)


def test_the_labeller_can_read_what_it_labels_where_selinux_enforces():
    """The agents' own type would leave it without the node's /etc/os-release."""
    environment = ENVIRONMENTS["rhel"]
    version = assignment(f"kubernetesVersion=v1.{environment.kubernetes}")
    made = objects([version, assignment("labeller.enabled=true")], "nvidia")
    seen = [one for one in judge(made, environment) if LABELLER in one.where]
    assert [one.rule for one in seen] == []
