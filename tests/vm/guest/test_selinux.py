"""SELinux enforces: what the agent may do in the type that its manifest names, what others may not.

The policy is Debian's, whose modules for containers and Kubernetes have the type spc_t without
confinement, as that of RHEL and its like. Every answer here is the kernel's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kube_rdma.model.attach.cni import PLUGIN, Code

from .selinux_node import PLUGINS, Node, decides, enforce, label_of, python, wanted_label
from .test_agent import HCA, SHARES
from .world import AGENT, until

# Slow: they want a bare machine of their own.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.kernel("lab.policy=selinux security=selinux audit=1 audit_backlog_limit=8192"),
]

AGENTS, PODS = "spc_t", "container_t"
SHIM = f"/opt/cni/bin/{PLUGIN}"
SOCKET, LOG = "/run/kube-rdma/agent.sock", "/run/kube-rdma/log"
UNLABELLED = "object_r:unlabeled_t"
# A runtime gives each container two of its own.
FIRST = "c1,c2"
CATEGORIES = (f"c{number},c{number + 1}" for number in range(3, 100, 2))
CALL = {
    "text": json.dumps({"cniVersion": "1.0.0", "name": "cluster", "type": PLUGIN}),
    "environment": {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/pod",
        "CNI_IFNAME": "net1", "CNI_PATH": "/opt/cni/bin",
    },
}  # fmt: skip
# What an agent in a pod's own type could not do: why the manifests name another.
REFUSED = {
    "write_configuration", "watch_configuration", "register_with_kubelet", "ask_kubelet_for_pods",
    "ask_runtime", "listen_for_shim", "write_cdi", "write_device_information", "attach",
    "make_functions", "see_devices_of_node", "use_device_of_node",
}  # fmt: skip
# What the agent has written, and whether the policy has a label for its path.
WRITTEN = (
    ("/etc/cni/net.d/10-test.conflist", True),
    (SHIM, True),
    ("/run/kube-rdma/agent.sock", False),
    ("/run/cdi/kube-rdma.json", False),
)


@pytest.fixture(scope="module")
def node():
    made = Node()
    yield made
    made.close()


@pytest.fixture(scope="module")
def agent(node):
    """A container with the agent's type, in which each act was tried."""
    container = node.container(AGENTS, FIRST)
    return container, node.answers(container)


@pytest.fixture(scope="module")
def pod(node):
    return node.container(PODS, next(CATEGORIES))


def test_the_policy_is_enforced(node, pod):
    """A container of a pod has its type, and may not write where it may as soon as nothing is."""
    status, printed, _ = node.runtime.run(words=("cat", "/proc/self/attr/current"), **pod)
    assert (status, printed.rstrip("\0")) == (0, pod["label"])
    words = ("touch", "/host/etc/cni/net.d/a-pod-s.conf")
    assert "ermission denied" in node.runtime.run(words=words, **pod)[2]
    enforce(False)
    assert node.runtime.run(words=words, **pod)[0] == 0
    enforce(True)


def test_the_agent_s_type_may_do_all_that_the_agent_does(agent):
    assert not {act: answer for act, answer in agent[1].items() if answer}


def test_a_pod_s_type_may_not(node, pod, agent):
    answers = node.answers(pod)
    assert {act for act, answer in answers.items() if answer} >= REFUSED
    assert answers["survey"] == answers["use_device_of_container"] == ""


def test_the_next_agent_takes_over_what_the_last_has_written(node, agent):
    """The runtime gives each container other categories, and files have those of their writer."""
    assert label_of("/etc/cni/net.d/10-test.conflist").endswith(f":s0:{FIRST}")
    answers = node.answers(node.container(AGENTS, next(CATEGORIES)))
    assert not {act: answer for act, answer in answers.items() if answer}


@pytest.mark.parametrize(("path", "has"), WRITTEN)
def test_a_file_has_the_type_of_its_folder(path, has, agent):
    """So that restorecon changes nothing, and nobody has to run it."""
    kind = label_of(path).split(":")[2]
    assert kind == label_of(Path(path).parent).split(":")[2]
    wanted = wanted_label(path)
    assert (wanted is not None) is has
    assert wanted is None or wanted.split(":")[2] == kind


@pytest.fixture
def socket(node):
    """The agent's socket, served by a container with the agent's type."""
    words = python((sys.executable, "-m", "tests.vm.guest.selinux_agent", SOCKET))
    before = Path(SOCKET).stat().st_ino if Path(SOCKET).exists() else 0
    node.runtime.start(
        words=words, name="agent", log=LOG, **node.container(AGENTS, next(CATEGORIES))
    )
    until(lambda: Path(SOCKET).exists() and Path(SOCKET).stat().st_ino != before)
    yield SOCKET
    node.runtime.stop(name="agent")


def test_the_runtime_s_shim_reaches_the_agent_and_a_pod_s_does_not(node, agent, pod, socket):
    """Installed by the agent, it runs in the runtime's domain."""
    status, printed, complaint = node.runtime.run(words=(SHIM,), **CALL)
    assert "ADD of c1 came" in json.loads(printed)["msg"], (status, complaint)
    inside = Path(pod["root"], "tmp/shim")
    inside.write_bytes(Path(SHIM).read_bytes())
    inside.chmod(0o755)
    printed = node.runtime.run(words=("/tmp/shim",), **CALL, **pod)[1]
    assert json.loads(printed)["code"] == Code.TRY_AGAIN  # as if the agent were away


def test_the_agent_s_process_offers_and_gives_its_cards(node):
    """To a kubelet in its domain, which connects to the agent's own socket in its folder."""
    container = node.container(AGENTS, next(CATEGORIES))
    Path(container["root"], "tmp/config.json").write_text('{"mode": "hca"}')
    options = ("--config", "/tmp/config.json", "--kubelet-root", "/var/lib/kubelet")
    node.runtime.start(words=python((*AGENT, *options)), name="plugin", log=LOG, **container)
    try:
        given = node.kubelet.allocate(folder=PLUGINS, resource=HCA, shares=SHARES)
    finally:
        node.runtime.stop(name="plugin")
    assert "/dev/infiniband/uverbs0" in given


def test_a_pod_uses_the_device_that_the_runtime_makes_for_it(node, pod):
    """Verbs, with memory and queue pairs; the node's own device, bound into it, it may not open."""
    ask = "ibv_rc_pingpong -d rxe0 -g 0 -n 10"
    words = ("sh", "-c", f"{ask} & until {ask} localhost; do :; done; wait")
    status, printed, complaint = node.runtime.run(words=words, **pod)
    assert status == 0, complaint
    assert printed.count("10 iters") == 2
    words = ("dd", "if=/host/dev/infiniband/uverbs0", "count=0")
    assert "ermission denied" in node.runtime.run(words=words, **pod)[2]


def test_a_pod_needs_a_rule_of_the_administrator_for_infiniband():
    """There the kernel asks for each partition key; Ethernet has none, so verbs work here."""
    for domain, allowed in ((AGENTS, True), (PODS, False)):
        source, target = (f"system_u:{kind}:s0" for kind in (f"system_r:{domain}", UNLABELLED))
        assert decides(source, target, "infiniband_pkey", "access") is allowed
