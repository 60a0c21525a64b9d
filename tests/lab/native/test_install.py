"""A release of the chart on a cluster: installed, upgraded, rolled back and taken away by Helm 4.

Native nodes: their constructed cards are offered, which is what an installation is for.
"""

import json

import pytest
import yaml

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.product import IMAGE
from kube_rdma_lab.demo import scc
from tests.documents.shell import Shell
from tests.kit import cluster_users
from tests.kit import helm as kit
from tests.kit.pods import sleeping_pod

RELEASE, RECORDS = "rdma", "kube-system"
NAMESPACE, DAEMON_SET = "mlnx-network-operator", "rdma-shared-dp-ds"
RESOURCE = "rdma/hca_shared_devices_a"
POOL = "installed"
POD, VIEWER = "holder", "viewer"
NETWORKS = "kube-rdma.io/network-status"
FORMER = "kube-rdma-admission"
CARD = "mlx5_0"  # of the constructed cards
NODES = ("node-1", "node-2")
OURS = "kube-rdma"
FOLDERS = "find /etc/cni/net.d /opt/cni/bin -type f | sort"
RECORDS_OF_NODE = "find /var/lib/kube-rdma /run/kube-rdma -mindepth 1"


@pytest.fixture(scope="module")
def lab(native):
    """As if nobody had defined pools of addresses yet; other files want them defined."""
    definitions = f"{kit.ROOT}/config/crds"
    cluster.label_cards(native)
    scc.install_kinds(native)
    cluster.kubectl(native, "delete", "-f", definitions)
    cluster.kubectl(native, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    yield native
    cluster.kubectl(native, "apply", "-f", definitions)
    cluster.kubectl(native, "delete", "ippool", POOL, "--ignore-not-found")
    cluster.kubectl(native, "label", "node", "--all", f"{cluster.CARDS_LABEL}-")


@pytest.fixture(scope="module")
def helm(lab, tmp_path_factory):
    """A function that calls Helm 4 and returns what it did; most calls have to succeed."""
    with kit.on_lab(lab, tmp_path_factory.mktemp("helm"), RECORDS) as helm_call:

        def call(*arguments, fails=False):
            code, printed = helm_call(*arguments)
            assert bool(code) is fails, printed
            return printed

        yield call
        call("uninstall", RELEASE, "--ignore-not-found", "--wait")


@pytest.fixture(scope="module")
def values(lab, tmp_path_factory):
    """The document's configuration for the interface of a constructed card, and a pool."""
    interface = cluster.shell(
        lab, "node-1", "ls", f"/sys/class/infiniband/{CARD}/device/net"
    ).strip()
    entry = {"resourceName": "hca_shared_devices_a", "rdmaHcaMax": 1000, "devices": [interface]}
    pool = {"name": POOL, "spec": {"ranges": [{"subnet": "192.168.140.0/24"}]}}
    path = tmp_path_factory.mktemp("values") / "values.json"
    given = {
        "preset": "nvidia",
        "image": {"repository": IMAGE},
        "agent": {"config": json.dumps({"configList": [entry]})},
        "pools": [pool],
    }
    path.write_text(json.dumps(given))
    return path


def folders(lab):
    """The files of CNI on both nodes, without what other tests' agents may have left."""
    return {
        node: [path for path in cluster.shell(lab, node, FOLDERS).split() if OURS not in path]
        for node in NODES
    }


def holder(lab):
    """What a restart or a new pod would change."""
    document = cluster.get(lab, f"pod/{POD}")
    (status,) = document["status"]["containerStatuses"]
    return document["metadata"]["uid"], status["containerID"], status["restartCount"]


def agents(lab):
    """The uids of the agents' pods."""
    listed = cluster.get(lab, "-n", NAMESPACE, "pods", "-l", f"name={DAEMON_SET}")["items"]
    return {each["metadata"]["uid"] for each in listed}


def memory(lab):
    """The limit of the agents that the cluster wants."""
    document = cluster.get(lab, "-n", NAMESPACE, f"daemonset/{DAEMON_SET}")
    (container,) = document["spec"]["template"]["spec"]["containers"]
    return container["resources"]["limits"]["memory"]


def kinds(lab):
    """Every object that bears this release's name, by kubectl's names."""
    words = "namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies"
    listed = cluster.get(lab, words)["items"]
    note = "meta.helm.sh/release-name"
    return {
        (each["kind"], each["metadata"]["name"])
        for each in listed
        if each["metadata"].get("annotations", {}).get(note) == RELEASE
    }


def left_behind(lab):
    """What a version with an admission webhook left: both configurations, and a Secret of one."""
    webhook = {
        "name": "pods.kube-rdma.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "clientConfig": {"service": {"name": FORMER, "namespace": NAMESPACE, "path": "/validate"}},
    }
    api, name = "admissionregistration.k8s.io/v1", "pods.kube-rdma.io"
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        head = {"apiVersion": api, "kind": kind, "metadata": {"name": name}}
        cluster.apply(lab, head | {"webhooks": [webhook]})
    made = cluster.get(lab, f"validatingwebhookconfiguration/{name}")
    owner = {"apiVersion": api, "kind": made["kind"], "name": name, "uid": made["metadata"]["uid"]}
    metadata = {"name": FORMER, "namespace": NAMESPACE, "ownerReferences": [owner]}
    cluster.apply(lab, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})


def of_webhooks(lab):
    """All configurations of webhooks, and Secrets of the installation's namespace."""
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations,secrets"
    listed = cluster.get(lab, "-n", NAMESPACE, kinds)["items"]
    return {(each["kind"], each["metadata"]["name"]) for each in listed}


def seen_by_a_viewer(lab, tmp_path):
    """The cluster's status as somebody sees it who is bound to the role for viewing alone."""
    role = "--clusterrole=kube-rdma-view"
    cluster.kubectl(lab, "create", "serviceaccount", VIEWER)
    cluster.kubectl(
        lab, "create", "clusterrolebinding", VIEWER, role, f"--serviceaccount=default:{VIEWER}"
    )
    document = yaml.safe_load(lab.kubeconfig.read_text())
    token = cluster.kubectl(lab, "create", "token", VIEWER).strip()
    for user in document["users"]:
        user["user"] = {"token": token}
    theirs = tmp_path / "viewer"
    theirs.write_text(yaml.safe_dump(document))
    theirs.chmod(0o600)
    with Shell({"KUBECONFIG": str(theirs)}) as shell:
        code, printed = shell.run("kube-rdma status -o json")
    cluster.kubectl(lab, "delete", "clusterrolebinding", VIEWER)
    cluster.kubectl(lab, "delete", "serviceaccount", VIEWER)
    assert code in (0, 1), printed  # with problems or without, but never in the dark
    return json.loads(printed)


DEFINITION = "network-attachment-definitions.k8s.cni.cncf.io"
LOOKING = "looking"


def looked(helm):
    """Whether an installation with networks would bring their definition; it installs nothing."""
    given = ("preset=rails", f"image.repository={IMAGE}", f"fullnameOverride={LOOKING}")
    given = (*given, "namespace.create=false", "namespace.name=")
    options = [word for text in given for word in ("--set", text)]
    printed = helm("install", LOOKING, str(kit.CHART), "--dry-run=server", *options)
    names = {line.strip().replace('"', "") for line in printed.splitlines()}
    assert "name: rail-0" in names
    return f"name: {DEFINITION}" in names


def test_the_definition_of_networks_is_made_where_there_is_none_and_no_other_is_taken(lab, helm):
    """Another installation's stays out of the release, the release's own stays in it."""
    notes = [f"meta.helm.sh/release-name={LOOKING}", f"meta.helm.sh/release-namespace={RECORDS}"]
    foreign = f"{kit.ROOT}/config/foreign"
    assert not looked(helm)
    # A page may have left it as that of its release, which Helm keeps.
    owned = ("crd", DEFINITION, "--overwrite")
    cluster.kubectl(lab, "annotate", *owned, *notes)
    cluster.kubectl(lab, "label", *owned, "app.kubernetes.io/managed-by=Helm")
    assert looked(helm)
    cluster.kubectl(lab, "delete", "-f", foreign)
    try:
        assert looked(helm)
    finally:
        scc.install_kinds(lab)
        cluster.kubectl(lab, "delete", "-f", f"{kit.ROOT}/config/crds")


def test_a_release_lives_and_goes(lab, helm, values, tmp_path):
    """From the first node with shares to a cluster that has nothing of it but definitions."""
    before = folders(lab)
    helm("install", RELEASE, str(kit.CHART), "--values", str(values))
    cluster.rollout(lab, DAEMON_SET, NAMESPACE)
    cluster.wait_for_resource(lab, RESOURCE, "1k")
    cluster.wait(
        lab, "-n", NAMESPACE, "deployment/kube-rdma-controller", "--for=condition=Available"
    )
    cluster.wait(lab, f"ippool/{POOL}", "--for=condition=Ready")
    pool = cluster.get(lab, f"ippool/{POOL}")["metadata"]["uid"]
    assert len(kinds(lab)) == 13
    assert not seen_by_a_viewer(lab, tmp_path)["notSeen"]

    cluster.apply(lab, sleeping_pod(POD, limits={RESOURCE: 1}))
    cluster.ready(lab, POD)
    running, first = holder(lab), agents(lab)

    refused(helm)
    limit = "agent.resources.limits.memory=300Mi"
    helm("upgrade", RELEASE, str(kit.CHART), "--values", str(values), "--set", limit)
    cluster.rollout(lab, DAEMON_SET, NAMESPACE)
    assert memory(lab) == "300Mi"
    waiting.until(lab, "new agents alone", lambda: not first & agents(lab))
    second = agents(lab)

    before_upgrade = of_webhooks(lab)
    left_behind(lab)
    former = ("--reuse-values", "--set", "admission.webhook.certificate=own")
    helm("upgrade", RELEASE, str(kit.CHART), *former, "--set", "controller.podLabels.a=b")
    assert memory(lab) == "300Mi"
    waiting.until(lab, "no former webhook", lambda: of_webhooks(lab) <= before_upgrade)

    helm("rollback", RELEASE, "1")
    cluster.rollout(lab, DAEMON_SET, NAMESPACE)
    assert memory(lab) == "256Mi"
    waiting.until(lab, "older agents alone", lambda: not second & agents(lab))
    assert holder(lab) == running
    assert cluster.get(lab, f"ippool/{POOL}")["metadata"]["uid"] == pool
    cluster.wait_for_resource(lab, RESOURCE, "1k")

    as_if_it_had_networks(lab, tmp_path)
    assert f"default/{POD}" in helm("uninstall", RELEASE, fails=True)
    assert agents(lab)
    cluster.kubectl(lab, "delete", "pod", POD, "--grace-period=1")
    taken_away(lab, helm)
    assert folders(lab) == before
    for node in NODES:
        assert OURS not in cluster.shell(lab, node, f"{FOLDERS} | xargs grep -l {OURS} || true")
        assert OURS not in cluster.shell(lab, node, FOLDERS)


def as_if_it_had_networks(lab, tmp_path):
    """The agent of its node tells the pod so; the API server takes it from nobody else."""
    node = cluster.get(lab, f"pod/{POD}")["spec"]["nodeName"]
    listed = cluster.get(lab, "-n", NAMESPACE, "pods", "-l", f"name={DAEMON_SET}")["items"]
    (agent,) = (one["metadata"]["name"] for one in listed if one["spec"]["nodeName"] == node)
    config = cluster_users.of_pod(lab, agent, NAMESPACE, tmp_path)
    words = ("annotate", "-n", "default", "pod", POD, f"{NETWORKS}=[]")
    cluster.kubectl(lab, f"--kubeconfig={config}", *words)


def refused(helm):
    """A second release with the same definitions, and an upgrade without the file of values.

    That would be preset default, and the agents were gone.
    """
    image = ("--set", "image.repository=localhost/kube-rdma")
    other = ("install", "other", str(kit.CHART), *image, "--set", "preset=vke")
    assert "cannot be imported into the current release" in helm(*other, fails=True)
    unnamed = ("upgrade", RELEASE, str(kit.CHART), *image, "--reset-values")
    assert "of another preset than default" in helm(*unnamed, fails=True)


def taken_away(lab, helm):
    """Nothing is left of the release but definitions and pools, and empty folders of the nodes."""
    assert "ippools.kube-rdma.io" in helm("uninstall", RELEASE, "--wait")
    assert not kinds(lab)
    cluster.get(lab, "crd/ippools.kube-rdma.io")
    for node in NODES:
        conditions = cluster.get(lab, f"node/{node}")["status"]["conditions"]
        assert "kube-rdma.io/CardsHealthy" not in {each["type"] for each in conditions}
        assert not cluster.shell(lab, node, RECORDS_OF_NODE)
    waiting.until(lab, "no shares", lambda: not shares(lab))


def shares(lab):
    """The nodes that still offer the resource."""
    return [
        each["metadata"]["name"]
        for each in cluster.get(lab, "nodes")["items"]
        if each["status"]["allocatable"].get(RESOURCE, "0") != "0"
    ]
