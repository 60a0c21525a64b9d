"""Two people and their pages: who writes a pod, and who is called at night.

Each does what the pages say, in their order, with an account that holds the roles which the pages
name and no other right (tests/kit/walks). The cluster has the agents of preset `default` on
constructed cards. What takes GPUs or cards that move data is left out: logs of NCCL and UCX, and
`verify`. The network is on eth0, where all native nodes have one.
"""

import re
from contextlib import contextmanager
from itertools import takewhile

import pytest
import yaml

from kube_rdma.cli.output import ExitCode
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from kube_rdma_lab.native.replay import Replay
from tests.documents.pages import ROOT
from tests.kit import manifests
from tests.kit.pods import in_network, sleeping_pod
from tests.kit.walks import Walker

# Slow: the installation alone takes a minute, and the full disk begins agents anew.
pytestmark = pytest.mark.slow

EXAMPLE = scc.examples() / "nics"
NODE, AGENTS, DAEMONSET = "node-1", "kube-rdma", "kube-rdma-agent"
RESOURCE, SHARES, OF_A_CARD = "rdma/nic", 128, 16
SPACE, POOL = "train", "walks"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
PEOPLE = ("view", "verify", "doctor", "aggregate-to-view", "aggregate-to-edit")
STATE, ASIDE = "/var/lib/kube-rdma", "/run/kube-rdma.aside"
NIGHT = """
kube-rdma status --problems-only
kubectl get nodereport NODE -o yaml
kube-rdma doctor node/NODE
kube-rdma top nodes --once
kube-rdma doctor pod/POD -n NAMESPACE
kube-rdma explain pod/POD -n NAMESPACE
"""
STATUS, REPORT, DOCTOR, TOP, OF_POD, EXPLAIN = NIGHT.strip().splitlines()
WELL = "Nothing is wrong in what was seen"


@pytest.fixture(scope="module")
def lab(native):
    """Agents and controller of the preset, its roles for people, and a namespace with a network."""
    scc.install_kinds(native)
    for name in ("agent", "controller"):
        cluster.kubectl(native, "apply", "-f", f"{EXAMPLE}/{name}.yaml")
    cluster.kubectl(native, "create", "namespace", SPACE)
    cluster.apply(native, *roles(), *network())
    cluster.rollout(native, DAEMONSET, AGENTS)
    cluster.wait_for_resource(native, RESOURCE, SHARES, node=NODE)
    cluster.until_chained(native, NODE)
    yield native
    cluster.kubectl(native, "delete", "namespace", SPACE)
    made = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in roles()]
    cluster.kubectl(native, "-n", AGENTS, "delete", *made)
    for name in ("controller", "agent"):
        words = ("--cascade=foreground", "--wait", "--ignore-not-found")
        cluster.kubectl(native, "delete", "-f", f"{EXAMPLE}/{name}.yaml", *words)
    remove_pool(native)


def roles():
    """Those for people, which an installation makes and binds to no one."""
    names = {f"kube-rdma-{name}" for name in PEOPLE}
    kinds = ("Role", "ClusterRole")
    made = objects([], "default")
    return [o for o in made if o["kind"] in kinds and o["metadata"]["name"] in names]


def network():
    """A pool, and a network of the namespace."""
    yield pool("10.83.0.0/24")
    ipam = {"type": "kube-rdma-ipam", "pool": POOL}
    config = {"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "ipam": ipam}
    yield manifests.network(POOL, config, SPACE)


def pool(subnet):
    """The pool with addresses of a subnet."""
    return manifests.ip_pool(POOL, ranges=[{"subnet": subnet}], blockSize=8, restSeconds=0)


def remove_pool(lab):
    """The pool, and what nodes hold of it."""
    cluster.kubectl(lab, "delete", "ippool", POOL, "--ignore-not-found")
    blocks = cluster.kubectl(lab, "get", "ipblocks", "-o", "name").split()
    if own := [name for name in blocks if re.search(r"\.10-8[34]-", name)]:
        cluster.kubectl(lab, "delete", *own)


@contextmanager
def running(lab, name, *, ready=True, **more):
    """A pod of the namespace on the node, for a while."""
    pod = sleeping_pod(name, namespace=SPACE, terminationGracePeriodSeconds=1, **more)
    cluster.apply(lab, pod)
    try:
        if ready:
            cluster.ready(lab, name, namespace=SPACE)
        yield name
    finally:
        cluster.kubectl(lab, "-n", SPACE, "delete", "pod", name, "--ignore-not-found")


# The author of a pod: docs/pods.md


@pytest.fixture
def author(lab, tmp_path):
    """An account with the rights of a namespace, in which its kubeconfig is."""
    walker = Walker(lab, "author", ["docs/pods.md"], tmp_path, namespace=SPACE)
    with walker.granted("edit", namespace=SPACE):
        walker.may("create", "pods", "-n", SPACE)
        walker.may("list", "network-attachment-definitions.k8s.cni.cncf.io", "-n", SPACE)
        yield walker


def test_rights_for_a_namespace_show_its_networks_and_name_what_is_hidden(author):
    code, printed = author.does("kube-rdma resources")
    assert code == ExitCode.OK
    assert f"{SPACE}/{POOL}" in printed
    assert re.search(r"(?m)^\? Not seen: ", printed), printed


def test_the_lines_that_are_shown_make_a_pod_with_its_devices(lab, author):
    with author.granted("kube-rdma-view"):
        author.may("list", "nodereports.kube-rdma.io")
        code, printed = author.does("kube-rdma resources")
        assert code == ExitCode.OK
        assert int(row(printed, "ON A NODE")) == SHARES
        written = lines_to_write(printed)
        assert written["spec"]["containers"][0]["resources"]["limits"] == {RESOURCE: 1}
        assert "annotations" not in written["metadata"]  # cards of InfiniBand need no network
        limits = written["spec"]["containers"][0]["resources"]["limits"]
        with running(lab, "w-0", limits=limits, nodeName=NODE):
            _, printed = author.does("kube-rdma resources")
            assert row(printed, "USED HERE") == "1"
            code, plan = author.does("kubectl rdma explain pod/NAME", NAME="w-0")
            assert (code, RESOURCE in plan) == (ExitCode.OK, True)
            see = "kubectl exec NAME -- cat /etc/nccl.conf /etc/ucx/ucx.conf"
            code, settings = author.does(see, NAME="w-0")
            assert code == 0
            assert re.search(r"(?m)^NCCL_IB_HCA==mlx5_\d", settings)
            code, devices = author.does("kubectl exec NAME -- ls /dev/infiniband", NAME="w-0")
            assert code == 0
            assert len(re.findall(r"\buverbs\d+", devices)) == 1


def row(printed, column):
    """A value of the resource's row; columns stand below their heads."""
    lines = printed.splitlines()
    head = next(line for line in lines if line.startswith("RESOURCE "))
    own = next(line for line in lines if line.startswith(f"{RESOURCE} "))
    return own[head.index(column) :].split()[0]


def lines_to_write(printed):
    """The lines for the resource, as YAML."""
    _, _, rest = printed.partition(f"For {RESOURCE}.")
    lines = takewhile(lambda line: line.startswith("    "), rest.splitlines()[1:])
    return yaml.safe_load("\n".join(lines))


def test_a_pod_that_asks_for_too_much_is_explained(lab, author):
    """The row of the page: FailedScheduling with Insufficient, then ON A NODE."""
    assert author.reads(f"`FailedScheduling` with `Insufficient {RESOURCE}`")
    with (
        author.granted("kube-rdma-view"),
        running(lab, "wants-much", ready=False, limits={RESOURCE: SHARES + 1}),
    ):
        author.may("list", "nodereports.kube-rdma.io")
        cluster.until_event(lab, "FailedScheduling", f"Insufficient {RESOURCE}")
        _, printed = author.does("kube-rdma resources")
        assert int(row(printed, "ON A NODE")) < SHARES + 1
        code, page = author.does("kubectl rdma explain pod/NAME", NAME="wants-much")
        assert code == ExitCode.PROBLEM  # it does not run
        assert f"Insufficient {RESOURCE}" in page


def test_a_network_with_a_wrong_name_is_explained(lab, author):
    """The row of the page: FailedCreatePodSandBox, then explain."""
    assert author.reads("`FailedCreatePodSandBox`")
    wrong = f"{POOL}x"
    spec = {"annotations": {NETWORKS: wrong}, "nodeName": NODE}
    with running(lab, "misspelt", ready=False, **spec):
        cluster.until_event(lab, "FailedCreatePodSandBox", wrong)
        code, page = author.does("kubectl rdma explain pod/NAME", NAME="misspelt")
        assert code == ExitCode.PROBLEM
        assert wrong in page
        assert f"Did you mean {POOL}?" in page or f"Did you mean {SPACE}/{POOL}?" in page


# The person on call: docs/runbook.md, and what it leads to in docs/doctor.md


@pytest.fixture
def on_call(lab, tmp_path):
    """An account with the roles that the runbook names for its commands."""
    walker = Walker(lab, "on-call", ["docs/runbook.md"], tmp_path)
    with (
        walker.granted("kube-rdma-view"),
        walker.granted("kube-rdma-doctor", kind="role", namespace=AGENTS),
    ):
        walker.may("list", "nodereports.kube-rdma.io")
        walker.may("create", "pods", "--subresource=exec", "-n", AGENTS)
        yield walker


@pytest.fixture
def pod(lab):
    """A pod with a network, as jobs have it."""
    with running(lab, "worker-0", annotations={NETWORKS: POOL}, nodeName=NODE) as name:
        yield name


def first_of(printed):
    """Code and subject of what stands first."""
    match = re.search(r"(?m)^[✗!] (KR\d{3}) +(.*)$", printed)
    assert match, printed
    assert f"\n### {match[1]} · " in (ROOT / "docs/doctor.md").read_text()
    return match[1], match[2]


def test_no_command_of_the_page_wants_another_right(lab, on_call, pod):
    """On a node that is well; the doctor may leave checks out that take the pod's processes."""
    values = {"NODE": NODE, "POD": pod, "NAMESPACE": SPACE}
    for command in (STATUS, REPORT, DOCTOR, TOP, OF_POD, EXPLAIN):
        words = {name: value for name, value in values.items() if name in command}
        code, printed = on_call.does(command, **words)
        assert code in (ExitCode.OK, ExitCode.UNKNOWN), printed
        assert "✗" not in printed
        assert f'User "{on_call.account}"' not in printed  # of whom something is refused
    _, page = on_call.does(TOP)
    assert NODE in page


def test_a_cable_that_is_out_is_seen_by_status_report_and_doctor(lab, on_call):
    replay = Replay(lab, NODE)
    replay.down("mlx5_3")
    try:
        cluster.wait_for_resource(lab, RESOURCE, SHARES - OF_A_CARD, node=NODE)
        cluster.wait(lab, f"nodereport/{NODE}", "--for=condition=CardsHealthy=False")
        code, problems = on_call.does(STATUS)
        assert (code, "mlx5_3" in problems) == (ExitCode.PROBLEM, True)
        _, report = on_call.does(REPORT, NODE=NODE)
        assert "mlx5_3: no port is ACTIVE" in report
        code, printed = on_call.does(DOCTOR, NODE=NODE)
        assert (code, first_of(printed)) == (ExitCode.PROBLEM, ("KR121", "mlx5_3"))
    finally:
        replay.up("mlx5_3")
        cluster.wait_for_resource(lab, RESOURCE, SHARES, node=NODE)


@contextmanager
def undone(lab, script, undo):
    """A node's root runs the script; afterwards the other one, also when it failed half way."""
    try:
        cluster.shell(lab, NODE, script)
        yield
    finally:
        cluster.shell(lab, NODE, undo)


def test_an_address_that_vanished_in_a_pod_stands_first(lab, on_call, pod):
    """Once this ended in the sentence that nothing is wrong."""
    uid = cluster.get(lab, "-n", SPACE, f"pod/{pod}")["metadata"]["uid"]
    cluster.shell(lab, NODE, in_network(uid, "ip addr flush dev net1"))
    code, printed = on_call.does(OF_POD, POD=pod, NAMESPACE=SPACE)
    assert code == ExitCode.PROBLEM
    assert first_of(printed) == ("KR404", "net1")
    assert WELL not in printed


def begun_anew(lab):
    """Other agents: each has the folders of its start."""
    cluster.kubectl(lab, "delete", "pod", "-n", AGENTS, "-l", f"name={DAEMONSET}")
    cluster.rollout(lab, DAEMONSET, AGENTS)
    cluster.wait_for_resource(lab, RESOURCE, SHARES, node=NODE)


def test_a_full_disk_of_the_node_stands_first(lab, on_call):
    """Once this ended in the sentence that nothing is wrong. The disk is a small one."""
    small = "mount -t tmpfs -o size=2m none"
    script = f"cp -a {STATE} {ASIDE}; {small} {STATE}; cp -a {ASIDE}/. {STATE}/; rm -r {ASIDE}"
    undo = (
        f"rm -f {STATE}/filler; cp -a {STATE} {ASIDE}; umount -l {STATE}; "
        f"rm -rf {STATE}/*; cp -a {ASIDE}/. {STATE}/; rm -r {ASIDE}"
    )
    try:
        with undone(lab, script, undo):
            begun_anew(lab)
            cluster.shell(lab, NODE, f"dd if=/dev/zero of={STATE}/filler bs=4k 2>/dev/null || true")
            code, printed = on_call.does(DOCTOR, NODE=NODE)
        assert code == ExitCode.PROBLEM
        assert first_of(printed) == ("KR207", STATE)
        assert WELL not in printed
    finally:
        begun_anew(lab)
