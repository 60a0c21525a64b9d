"""`kube-rdma doctor` from a laptop: nodes and pods through their agents, with its one Role alone.

The agents are those of example S1, the Role is the one that an installation renders. What it gives
is the whole of what the account may do: everything else is asked for by exec.
"""

import itertools
import json
import shutil
from contextlib import contextmanager
from threading import Event, Thread

import pytest
import yaml

from kube_rdma.cli.output import ExitCode
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from tests.documents.shell import Shell
from tests.kit import manifests
from tests.kit.pods import UNTIL_ASKED, in_network, sleeping_pod

EXAMPLE = scc.examples() / "s1-vke"
NAMESPACE, LABEL = "kube-rdma-vke", "vke.node.rdma.mode"
RESOURCE, CARDS, NODE, DEVICE = "vke.volcengine.com/rdma", 8, "node-1", "mlx5_5"
ACCOUNT, SPACE, POOL, POD = "doctors", "train", "elsewhere", "worker-0"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
# docs/doctor.md has them.
OF_NODE = "kube-rdma doctor node/node-1"
OF_POD = "kube-rdma doctor pod/worker-0 -n train"
OF_FAULTY = "kube-rdma doctor pod/faulty -n train"
OF_ALL = "kube-rdma doctor --all-nodes"
KEPT = """
kube-rdma bundle cluster.tar.gz
kube-rdma doctor --all-nodes --bundle cluster.tar.gz
"""


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with agents that attach networks, and a pod with one in a namespace of its own.

    The network is on eth0, where all native nodes have one.
    """
    scc.install_kinds(native)
    for name in ("daemonset", "controller"):
        cluster.kubectl(native, "apply", "-f", f"{EXAMPLE}/{name}.yaml")
    cluster.kubectl(native, "create", "namespace", SPACE)
    cluster.apply(native, *network())
    cluster.kubectl(native, "label", "node", NODE, f"{LABEL}=shared", "--overwrite")
    cluster.rollout(native, "rdma-device-plugin", NAMESPACE)
    cluster.wait_for_resource(native, RESOURCE, CARDS, node=NODE)
    cluster.until_chained(native, NODE)
    yield native
    cluster.kubectl(native, "delete", "namespace", SPACE)
    cluster.kubectl(native, "label", "node", NODE, f"{LABEL}-")
    for name in ("controller", "daemonset"):
        cluster.kubectl(native, "delete", "-f", f"{EXAMPLE}/{name}.yaml", "--cascade=foreground")
    cluster.kubectl(native, "delete", "ippool", POOL, "--ignore-not-found")
    blocks = cluster.kubectl(native, "get", "ipblocks", "-o", "name").split()
    if own := [name for name in blocks if ".10-79-" in name]:
        cluster.kubectl(native, "delete", *own)


def network():
    """A pool, a network of the namespace, and a pod of it that could undo what it was given."""
    ipam = {"type": "kube-rdma-ipam", "pool": POOL}
    config = {"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "ipam": ipam}
    yield manifests.ip_pool(POOL, ranges=[{"subnet": "10.79.0.0/24"}], blockSize=8, restSeconds=0)
    yield manifests.network(POOL, config, SPACE)


@pytest.fixture(scope="module")
def kubeconfig(lab, tmp_path_factory):
    """That of an account which has the Role of a doctor, and no other right."""
    account = f"--serviceaccount=default:{ACCOUNT}"
    with Shell({"KUBECONFIG": str(lab.kubeconfig)}) as shell:
        code, printed = shell.run("kube-rdma render --preset vke --part rights 2>/dev/null")
    assert code == 0, printed
    roles = [each for each in yaml.safe_load_all(printed) if each and each["kind"] == "Role"]
    (role,) = [each for each in roles if each["metadata"]["name"].endswith("-doctor")]
    name = role["metadata"]["name"]
    cluster.kubectl(lab, "create", "serviceaccount", ACCOUNT)
    cluster.apply(lab, role)
    cluster.kubectl(
        lab, "-n", NAMESPACE, "create", "rolebinding", ACCOUNT, f"--role={name}", account
    )
    can = ("auth", "can-i", "create", "pods", "--subresource=exec", "-n", NAMESPACE)
    whom = f"--as=system:serviceaccount:default:{ACCOUNT}"
    waiting.until(lab, "the right", lambda: cluster.kubectl(lab, *can, whom).strip() == "yes")
    document = yaml.safe_load(lab.kubeconfig.read_text())
    token = cluster.kubectl(lab, "create", "token", ACCOUNT).strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    path = tmp_path_factory.mktemp("doctors") / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    yield path
    cluster.kubectl(lab, "delete", "serviceaccount", ACCOUNT)
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "rolebinding", ACCOUNT, "--ignore-not-found")
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "role", name, "--ignore-not-found")


def asked(kubeconfig, command):
    """What the doctor says, as JSON, and its exit code."""
    with Shell({"KUBECONFIG": str(kubeconfig)}) as shell:
        code, printed = shell.run(f"{command} -o json")
    assert code in (ExitCode.OK, ExitCode.PROBLEM, ExitCode.UNKNOWN), printed
    return json.loads(printed), code


def test_a_node_is_seen_through_its_agent(lab, kubeconfig):
    document, _ = asked(kubeconfig, OF_NODE)
    assert document["node"] == NODE
    assert {"KR103", "KR201", "KR202", "KR207"} <= set(document["passed"]), document


def test_all_nodes_come_on_one_page(lab, kubeconfig):
    document, _ = asked(kubeconfig, OF_ALL)
    names = {each["metadata"]["name"] for each in cluster.get(lab, "nodes")["items"]}
    seen = {each["node"]: each["answered"] for each in document["nodes"]}
    assert seen[NODE]
    assert set(seen) <= names
    assert all(seen.values()), document


@contextmanager
def rising(lab, device, counter):
    """A counter of a port that goes up by one many times a second, as that of a bad cable."""
    port = lab.home / "nodes" / NODE / "sys/class/infiniband" / device / "ports/1"
    folder, new, over = port / "counters", port / "counter.new", Event()
    folder.mkdir()

    def write(count):
        new.write_text(f"{count}\n")
        new.rename(folder / counter)  # no reader sees half of it

    def go_on():
        for count in itertools.count(1):
            write(count)
            if over.wait(0.1):
                return

    write(0)
    writer = Thread(target=go_on)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
        shutil.rmtree(folder)


def test_errors_of_a_port_that_is_up_are_told_while_they_rise(lab, kubeconfig):
    before, _ = asked(kubeconfig, OF_NODE)
    assert "KR129" not in {each["code"] for each in before["findings"]}
    with rising(lab, DEVICE, "symbol_error"):
        document, _ = asked(kubeconfig, OF_NODE)
    own = [each for each in document["findings"] if each["code"] == "KR129"]
    assert [each["about"] for each in own] == [DEVICE], document
    assert "symbol_error rose by" in own[0]["evidence"]


def test_a_cluster_is_kept_in_a_file_and_judged_by_it(lab, kubeconfig, tmp_path):
    *_, names = KEPT.strip().splitlines()[0].split()
    for command in KEPT.strip().splitlines():
        with Shell({"KUBECONFIG": str(kubeconfig)}) as shell:
            code, printed = shell.run(command.replace(names, str(tmp_path / names)))
        assert code in (ExitCode.OK, ExitCode.PROBLEM, ExitCode.UNKNOWN), printed
    assert "with an agent" in printed


def test_an_address_that_vanished_in_a_pod_is_the_cause(lab, kubeconfig):
    """The agent's container sees no process of the pod; its journal knows namespace and address."""
    pod = sleeping_pod(
        POD,
        limits={RESOURCE: 1},
        annotations={NETWORKS: POOL},
        namespace=SPACE,
        nodeName=NODE,
        terminationGracePeriodSeconds=1,
    )
    cluster.apply(lab, pod)
    cluster.ready(lab, POD, namespace=SPACE)
    before, _ = asked(kubeconfig, OF_POD)
    assert before["pod"] == f"{SPACE}/{POD}"
    assert "KR404" in before["passed"], before
    uid = cluster.get(lab, "-n", SPACE, f"pod/{POD}")["metadata"]["uid"]
    cluster.shell(lab, NODE, in_network(uid, "ip addr flush dev net1"))
    after, code = asked(kubeconfig, OF_POD)
    assert code == ExitCode.PROBLEM
    first = after["findings"][0]
    assert (first["code"], first["about"]) == ("KR404", "net1")
    assert "10.79.0." in first["evidence"]


# What is wrong with a container, and the code that has to stand first. The agent starts nothing in
# the pod: limits are those of the node's /proc, variables are told by the runtime.
LOWERED = ["sh", "-c", f"ulimit -l 64; {UNTIL_ASKED[-1]}"]
LOCK = {"capabilities": {"add": ["IPC_LOCK"]}}
FAULTS = {
    "missing IPC_LOCK": ("KR430", {"command": LOWERED}),
    "memlock for a user": (
        "KR431",
        {"command": LOWERED, "securityContext": {"runAsUser": 65534, **LOCK}},
    ),
    "a variable against RDMA": (
        "KR421",
        {"env": [{"name": "NCCL_IB_DISABLE", "value": "1"}], "securityContext": LOCK},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_container_is_the_first_cause(lab, kubeconfig, name):
    """The score of docs/doctor.md from a laptop counts these."""
    code, container = FAULTS[name]
    pod = sleeping_pod(
        "faulty",
        limits={RESOURCE: 1},
        namespace=SPACE,
        nodeName=NODE,
        terminationGracePeriodSeconds=1,
    )
    pod["spec"]["containers"][0].update(container)
    cluster.apply(lab, pod)
    try:
        cluster.ready(lab, "faulty", namespace=SPACE)
        document, _ = asked(kubeconfig, OF_FAULTY)
    finally:
        cluster.kubectl(lab, "delete", "pod", "faulty", "-n", SPACE)
    first = document["findings"][0]
    assert (first["code"], first["about"]) == (code, "main"), document


def test_without_the_role_the_missing_right_is_named(lab, kubeconfig):
    """The Role is of the agents' namespace alone: agents elsewhere are out of reach."""
    with Shell({"KUBECONFIG": str(kubeconfig)}) as shell:
        code, printed = shell.run(f"{OF_NODE} --agent-namespace default")
    assert code == ExitCode.REFUSED, printed
    assert "may not be listed" in printed
