"""`kube-rdma install` on a cluster: its objects, Helm that takes over, and what Helm then leaves.

Native nodes, whose constructed cards are offered. Helm 4 and 3 take over in turn.
"""

import json

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.build.product import IMAGE
from tests.documents.shell import Shell
from tests.kit import helm as kit

pytestmark = pytest.mark.slow  # two Helms, one after the other
RELEASE, RECORDS, NAMESPACE = "rdma", "kube-system", "kube-rdma"
POOL = "commanded"
OURS = "clusterroles,clusterrolebindings,validatingadmissionpolicies,namespaces"


@pytest.fixture(scope="module")
def lab(native):
    """As if nobody had defined pools of addresses yet; other files want them defined."""
    definitions = f"{kit.ROOT}/config/crds"
    cluster.kubectl(native, "delete", "-f", definitions, "--ignore-not-found")
    yield native
    cluster.kubectl(native, "delete", "ippool", POOL, "--ignore-not-found")
    cluster.kubectl(native, "delete", "-f", definitions, "--ignore-not-found")
    cluster.kubectl(native, "apply", "-f", definitions)


@pytest.fixture(params=[kit.NEWEST, kit.OLDER])
def helm(request, lab, tmp_path):
    """A function that calls one Helm, which has to succeed, and returns what it printed."""
    with kit.built(request.param) as programs:

        def call(*words):
            options = ("-n", RECORDS, *words)
            done = kit.run(programs[request.param], tmp_path, *options, kubeconfig=lab.kubeconfig)
            assert not done.returncode, done.stdout + done.stderr
            return done.stdout

        yield call
        call("uninstall", RELEASE, "--ignore-not-found", "--wait")


@pytest.fixture
def install(lab, tmp_path):
    """A function that runs the command: its exit status, and all that it printed."""
    values = tmp_path / "values.json"
    pool = {"name": POOL, "spec": {"ranges": [{"subnet": "192.168.137.0/24"}]}}
    values.write_text(json.dumps({"image": {"repository": IMAGE}, "pools": [pool]}))

    def call(*words):
        with Shell({"KUBECONFIG": str(lab.kubeconfig)}) as shell:
            return shell.run(" ".join(("kube-rdma install --values", str(values), *words)))

    call.values = values
    return call


def versions(lab):
    """The objects of the release that nobody but an installation writes, with their versions."""
    made = cluster.get(lab, OURS)["items"]
    made += cluster.get(lab, "-n", NAMESPACE, "roles,rolebindings,configmaps,serviceaccounts")[
        "items"
    ]
    note = "meta.helm.sh/release-name"
    return {
        (one["kind"], one["metadata"]["name"]): one["metadata"]["resourceVersion"]
        for one in made
        if one["metadata"].get("annotations", {}).get(note) == RELEASE
    }


def test_it_installs_helm_takes_over_and_leaves_nothing(lab, install, helm):
    code, printed = install("--dry-run", "--try-image")
    assert code == 0, printed
    assert "Nothing was changed yet: preset default in namespace kube-rdma" in printed
    assert "The image runs on node node-" in printed
    assert not versions(lab)

    code, printed = install("--timeout", "5m")
    assert printed.startswith("Installed: preset default"), printed
    assert f"agent       {NAMESPACE}/kube-rdma-agent       2/2" in printed
    first = versions(lab)
    pool = cluster.get(lab, f"ippool/{POOL}")["metadata"]["uid"]
    code, printed = install("--timeout", "5m")
    assert printed.startswith("Nothing to change: preset default"), printed
    assert versions(lab) == first

    options = ("--values", str(install.values), "--set", "agent.resources.limits.memory=300Mi")
    helm("upgrade", "--install", RELEASE, str(kit.CHART), *options, "--no-hooks")
    cluster.rollout(lab, "kube-rdma-agent", NAMESPACE)
    agents = cluster.get(lab, "-n", NAMESPACE, "daemonset/kube-rdma-agent")
    (container,) = agents["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "300Mi"
    assert versions(lab).keys() == first.keys()
    assert cluster.get(lab, f"ippool/{POOL}")["metadata"]["uid"] == pool

    code, printed = install()
    assert code == 3
    assert "release rdma: Helm has a record of it in namespace kube-system." in printed
    helm("uninstall", RELEASE, "--wait")
    assert not versions(lab)
    assert cluster.get(lab, f"ippool/{POOL}")["metadata"]["uid"] == pool


def test_a_user_who_may_only_look_is_told_which_rights_are_missing(lab, install):
    cluster.kubectl(
        lab, "create", "clusterrolebinding", "looker", "--clusterrole=view", "--user=looker"
    )
    code, printed = install("--dry-run", "--as", "looker")
    cluster.kubectl(lab, "delete", "clusterrolebinding", "looker")
    assert code == 3
    assert "ClusterRole kube-rdma-view: the API server forbids to get clusterroles" in printed


def test_an_image_that_no_registry_has_is_one_sentence(lab, install):
    code, printed = install("--dry-run --try-image --image registry.invalid/rdma/kube-rdma:1")
    assert code == 3
    assert "cannot pull registry.invalid/rdma/kube-rdma:1: " in printed
    assert not [
        pod
        for pod in cluster.get(lab, "pods", "-A")["items"]
        if pod["metadata"]["name"].startswith("kube-rdma-image-")
        if "deletionTimestamp" not in pod["metadata"]
    ]
