"""Agent and controller under kube-rdma's own seccomp profiles: networks come and go.

The shim and the CNI plugin are started by the runtime, outside of any profile.
"""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster
from tests.documents.shell import Shell
from tests.kit import confined
from tests.kit.cluster_users import until_allowed, with_token

pytestmark = pytest.mark.slow  # an installation of its own, with all of its parts: minutes
FILTERED = "Seccomp:\t2"
# The runtime's default profile has it; ours has not.
SENSITIVE = "import os; os.mkfifo('/dev/shm/pipe')"
PYTHON = "/usr/bin/python3.11"
WATCHER = "watcher"


@pytest.fixture(scope="module")
def lab(native):
    confined.put_profiles(native)
    with confined.installed(native, *confined.PROFILE_VALUES):
        yield native


@pytest.fixture(scope="module")
def agent(lab):
    return confined.pod_of(lab, confined.AGENT, confined.NODE)


@pytest.fixture(scope="module")
def controller(lab):
    return confined.pod_of(lab, confined.CONTROLLER)


def profile_of(lab, pod):
    words = ("-n", confined.SPACE, f"pod/{pod}")
    (container,) = cluster.get(lab, *words)["spec"]["containers"]
    return container["securityContext"]["seccompProfile"]["localhostProfile"]


def test_both_run_under_their_profiles(lab, agent, controller):
    assert profile_of(lab, agent) == "kube-rdma/agent.json"
    assert profile_of(lab, controller) == "kube-rdma/controller.json"
    for pod in (agent, controller):
        assert FILTERED in confined.inside(lab, pod, "cat", "/proc/1/status")


def test_what_the_profile_lacks_is_refused_inside(lab, agent, controller):
    for pod in (agent, controller):
        with pytest.raises(Unavailable, match="Function not implemented"):
            confined.inside(lab, pod, PYTHON, "-c", SENSITIVE)


def test_a_pod_gets_its_network_and_gives_it_back(lab):
    """Twice, so that what the first left would be seen."""
    for _ in range(2):
        assert confined.attached(lab).startswith("10.83.0.")
        confined.detached(lab)


def test_a_pod_gets_a_share(lab):
    confined.lent(lab)


def test_the_doctor_runs_in_the_agent_s_container(lab, agent):
    command = ("sh", "-c", "kube-rdma doctor -o json || true")
    assert '"passed"' in confined.inside(lab, agent, *command)


def test_metrics_are_served_and_top_shows_them_with_its_role(lab, tmp_path):
    """The role is of the agents' namespace alone."""
    whom = f"--serviceaccount=default:{WATCHER}"
    cluster.kubectl(lab, "create", "serviceaccount", WATCHER)
    role = "--role=kube-rdma-doctor"
    cluster.kubectl(lab, "-n", confined.SPACE, "create", "rolebinding", WATCHER, role, whom)
    try:
        until_allowed(lab, WATCHER, "get", "pods", "--subresource=exec", "-n", confined.SPACE)
        with Shell({"KUBECONFIG": str(with_token(lab, WATCHER, tmp_path))}) as shell:
            words = f"--agent-namespace {confined.SPACE}"
            code, printed = shell.run(f"kube-rdma top nodes --once -o json {words}")
        assert code == 0, printed
        assert json.loads(printed)["silentNodes"] == {}
    finally:
        cluster.kubectl(lab, "delete", f"serviceaccount/{WATCHER}")
        cluster.kubectl(lab, "-n", confined.SPACE, "delete", f"rolebinding/{WATCHER}")


def test_nothing_was_restarted(lab, agent, controller):
    for pod in (agent, controller):
        words = ("-n", confined.SPACE, f"pod/{pod}")
        (status,) = cluster.get(lab, *words)["status"]["containerStatuses"]
        assert status["restartCount"] == 0
