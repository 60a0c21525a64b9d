"""The roles for people are enough for what pages say of them: each is bound to an account alone.

What they do is written into the lab's audit log, so `make rights` knows which rights it took.
"""

import json

import pytest

from kube_rdma.cli.output import ExitCode
from kube_rdma.install.installation import objects
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from tests.documents.shell import Shell
from tests.kit import manifests
from tests.kit.cluster_users import until_allowed, with_token
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # dozens of commands, each the start of a program: minutes

# It is bound for this file alone; the first right is the one that is waited for.
ROLES = {
    "kube-rdma-view": ("list", "nodes"),
    "kube-rdma-verify": ("create", "pods"),
    "view": ("list", "nodereports"),
    "edit": ("create", "bandwidthchecks"),
}
KINDS = (
    *("nodepolicies", "nodereports", "ippools", "ipblocks", "bandwidthchecks"),
    "repairpolicies",
)
POD, POOL, CHECK, NODE = "seen", "people", "nightly", "node-1"
CLAIMING, NETWORKS = "claiming", "k8s.v1.cni.cncf.io/networks"
OBJECTS = {"ippools": POOL, "bandwidthchecks": CHECK}
# docs/status.md, pods.md and ip.md: `kube-rdma-view` is enough.
WORDS = (
    "kube-rdma status",
    "kube-rdma resources",
    "kube-rdma ip list",
    f"kube-rdma ip show {POOL}",
    "kube-rdma ip check",
    "kube-rdma repair show",
    f"kube-rdma explain pod/{POD}",
    f"kube-rdma explain pod/{CLAIMING}",
    f"kube-rdma explain claim/{CLAIMING}",
)
# Of an agent that nobody installed; a claim of nobody.
ANSWERS = (ExitCode.OK, ExitCode.PROBLEM, ExitCode.UNKNOWN)


def check(name):
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "BandwidthCheck",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"test": "people"}},
    }


def waiting_pod():
    """A claim that no device can meet, and a pod that waits for it and names a network."""
    request = {"name": "card", "exactly": {"deviceClassName": "absent"}}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": CLAIMING, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }
    claims = [{"name": "card", "resourceClaimName": CLAIMING}]
    pod = sleeping_pod(CLAIMING, annotations={NETWORKS: "absent"}, resourceClaims=claims)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "card"}]}
    yield pod


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with the roles, a pool, a check and two pods; nothing of kube-rdma runs."""
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", f"{scc.examples().parent}/config/operator")
    roles = [one for one in objects((), "default", "rights") if one["metadata"]["name"] in NAMES]
    pool = manifests.ip_pool(POOL, ranges=[{"subnet": "10.84.0.0/24"}])
    cluster.apply(native, *roles, pool, check(CHECK), sleeping_pod(POD, nodeName=NODE))
    cluster.apply(native, *waiting_pod())
    cluster.ready(native, POD)
    yield native
    gone = ("--ignore-not-found", "--wait")
    cluster.kubectl(native, "delete", f"bandwidthcheck/{CHECK}", f"pod/{POD}", *gone)
    cluster.kubectl(native, "delete", f"pod/{CLAIMING}", f"resourceclaim/{CLAIMING}", *gone)
    cluster.kubectl(native, "delete", f"ippool/{POOL}", *gone)
    cluster.kubectl(native, "delete", *(f"clusterrole/{name}" for name in NAMES), *gone)
    cluster.kubectl(native, "delete", "-f", f"{scc.examples().parent}/config/operator", *gone)


NAMES = {
    *("kube-rdma-view", "kube-rdma-verify", "kube-rdma-bandwidth-check"),
    *("kube-rdma-aggregate-to-view", "kube-rdma-aggregate-to-edit"),
}


@pytest.fixture
def person(lab, request, tmp_path):
    """A function that runs a command with the rights of a role; its code and what it printed."""
    role = request.param
    account = f"has-{role}"
    cluster.kubectl(lab, "create", "serviceaccount", account)
    whom = f"--serviceaccount=default:{account}"
    cluster.kubectl(lab, "create", "clusterrolebinding", account, f"--clusterrole={role}", whom)
    try:
        until_allowed(lab, account, *ROLES[role])
        with Shell({"KUBECONFIG": str(with_token(lab, account, tmp_path))}) as shell:
            kubectl = f"{lab.state.binaries}/kubectl --cache-dir={tmp_path}"
            yield lambda command: shell.run(command.replace("kubectl", kubectl, 1))
    finally:
        cluster.kubectl(lab, "delete", f"serviceaccount/{account}", f"clusterrolebinding/{account}")


def of(role):
    return pytest.mark.parametrize("person", [role], indirect=True)


def may(person, *commands):
    for command in commands:
        code, printed = person(command)
        assert code == 0, (command, printed)
        assert "forbidden" not in printed, (command, printed)


def read(kinds):
    """The commands by which somebody looks at objects, one by one, as a list and as they change."""
    for kind in kinds:
        yield f"kubectl get {kind} -A"
        yield f"kubectl get {kind} {OBJECTS.get(kind, 'absent')} --ignore-not-found"
        yield f"timeout 5 kubectl get {kind} -A --watch --request-timeout=2s || true"


def written(tmp_path):
    """The commands by which somebody writes a check."""
    path = tmp_path / "check.json"
    path.write_text(json.dumps(check("theirs")))
    yield f"kubectl create -f {path}"
    yield f"kubectl replace -f {path}"
    yield 'kubectl patch bandwidthcheck theirs --type=merge -p \'{"spec":{"everySeconds":60}}\''
    yield "kubectl delete bandwidthcheck theirs --wait=false"


@of("kube-rdma-view")
def test_a_viewer_sees_all_that_pages_promise(lab, person):
    for command in WORDS:
        code, printed = person(command)
        assert code in ANSWERS, (command, printed)
        assert "forbid" not in printed, (command, printed)
    may(person, *read((*KINDS, "nicclusterpolicies")))
    may(person, "kubectl get net-attach-def -A")


@of("view")
def test_view_of_kubernetes_takes_in_kinds_and_networks(lab, person):
    may(person, *read((*KINDS, "network-attachment-definitions")))


@of("edit")
def test_edit_of_kubernetes_takes_in_checks(lab, person, tmp_path):
    may(person, *written(tmp_path))


@of("kube-rdma-verify")
def test_who_measures_may_write_checks_and_make_pods_to_measure(lab, person, tmp_path):
    """verify finds no cards here: it gets as far as these nodes let it, the rest is by hand."""
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(sleeping_pod("measures")))
    may(person, f"kubectl create -f {path}", "kubectl delete pod measures --wait=false")
    may(person, f"kubectl get resourceclaim {CLAIMING}", "kubectl get resourceslices")
    may(person, "timeout 5 kubectl get nodereports --watch --request-timeout=2s || true")
    may(person, *read(["bandwidthchecks"]), *written(tmp_path))
    code, printed = person(f"kube-rdma verify pods {POD} {POD}x")
    assert "forbid" not in printed, printed
    code, printed = person(
        "kube-rdma verify nodes --resource rdma/nic --image localhost/lab/verbs:1"
    )
    assert code != ExitCode.OK
    assert "forbid" not in printed, printed
    may(person, f"kubectl exec {POD} -- true")
