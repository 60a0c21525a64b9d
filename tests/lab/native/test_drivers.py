"""The gate of drivers on real nodes: nothing is loaded or unloaded under a pod that holds a share.

The driver is a stand-in: the lab's usual image, in which `sleep` is a script of the node (by PATH,
from the folder that the operator mounts) that writes down when it loads and when it would unload.
Pods that hold shares write into the same file, so its order is the proof.
"""

import json

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.images import VERBS
from kube_rdma_lab.demo import scc
from tests.kit import helm as kit

NAMESPACE, RELEASE, RECORDS = "mlnx-network-operator", "drivers", "kube-system"
POLICY = ("-n", NAMESPACE, "nicclusterpolicy/example-nicclusterpolicy")
DRIVERS = ("-n", NAMESPACE, "daemonsets", "-l", "kube-rdma.io/component=state-OFED")
FIRST, SECOND = NODES = ("node-1", "node-2")
RESOURCE, SHARES = "rdma/stand-in", 4
FEATURE = "feature.node.kubernetes.io"
SYSTEM = {
    f"{FEATURE}/pci-15b3.present": "true",
    f"{FEATURE}/kernel-version.full": "6.1",
    f"{FEATURE}/system-os_release.ID": "debian",
    f"{FEATURE}/system-os_release.VERSION_ID": "12",
}
TAG = "amd64-debian12-kver6.1"
REPOSITORY = "kube-rdma.io/lab"
HERE = "/run/mellanox/drivers"  # on the node and in the driver's container
RECORD = f"{HERE}/record"
PROGRAMS = f"{HERE}/stand-in"
LOAD, UNLOAD, HOLD, LEAVE = "loads", "would-unload", "holds", "leaves"
SLEEP = f"""\
#!/bin/sh
say() {{ echo "$1" >> {RECORD}; }}
trap 'say {UNLOAD}; exit 0' TERM
say {LOAD}
: > /.driver-ready
/usr/bin/sleep infinity &
wait
"""
LSMOD = "#!/bin/sh\necho mlx5_core 1 0\n"
HOLDER = f"""\
trap 'echo {LEAVE} >> {RECORD}; exit 0' TERM
echo {HOLD} >> {RECORD}
: > /tmp/ready
/usr/bin/sleep infinity &
wait
"""


@pytest.fixture(scope="module")
def lab(native):
    """Two nodes with labels of a system, shares of a plugin that reports nothing, and stand-ins."""
    scc.install_kinds(native)
    cluster.kubectl(native, "apply", "-f", f"{kit.ROOT}/config/operator")
    cluster.kubectl(native, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    for node in NODES:
        cluster.shell(native, node, "mkdir", "-p", PROGRAMS)
        for name, text in (("sleep", SLEEP), ("lsmod", LSMOD)):
            script = f"cat > {PROGRAMS}/{name}; chmod 755 {PROGRAMS}/{name}"
            waiting.run(native, native.on_node(node, "sh", "-c", script), stdin=text)
        for version in ("1", "2"):
            image(native, node, "tag", "--force", VERBS, stand_in(version))
        offer(native, node, str(SHARES))
    label(native, *(f"{key}={value}" for key, value in SYSTEM.items()))
    yield native
    cluster.kubectl(native, "delete", "pods", "-l", "test=drivers", "--ignore-not-found")
    label(native, *(f"{key}-" for key in SYSTEM))
    for node in NODES:
        offer(native, node, None)
        for version in ("1", "2"):
            image(native, node, "rm", stand_in(version))
        cluster.shell(native, node, "rm", "-r", HERE)
    cluster.kubectl(native, "delete", "namespace", NAMESPACE, "--ignore-not-found")
    cluster.kubectl(native, "delete", "-f", f"{kit.ROOT}/config/operator", "--wait")


@pytest.fixture(scope="module")
def helm(lab, tmp_path_factory):
    """The operator as a release of the chart; a function that calls Helm."""
    home = tmp_path_factory.mktemp("helm")
    with kit.built(kit.NEWEST) as programs:

        def call(*arguments):
            words = ("-n", RECORDS, *arguments)
            done = kit.run(programs[kit.NEWEST], home, *words, kubeconfig=lab.kubeconfig)
            return done.returncode, done.stdout + done.stderr

        values = ("preset=nvidia-operator", "image.tag=dev", "crds.install=false")
        sets = [word for value in values for word in ("--set", value)]
        code, printed = call("install", RELEASE, str(kit.CHART), *sets)
        try:
            assert code == 0, printed
            yield call
        finally:
            call("uninstall", RELEASE, "--ignore-not-found", "--no-hooks", "--wait")


def stand_in(version):
    return f"{REPOSITORY}/stand-in-{version}:{TAG}"


def image(lab, node, *words):
    cluster.shell(lab, node, "ctr", "-n", "k8s.io", "images", *words)


def offer(lab, node, shares):
    """Offer shares as a plugin would of which the operator knows nothing."""
    body = json.dumps({"status": {"capacity": {RESOURCE: shares}}})
    cluster.kubectl(lab, "patch", "node", node, "--subresource=status", "--type=merge", "-p", body)


def label(lab, *words, nodes=("--all",)):
    cluster.kubectl(lab, "label", "node", *nodes, "--overwrite", *words)


def policy(version):
    """Another image is exchanged by the operator; PATH makes the stand-in of it."""
    section = {
        "image": "stand-in",
        "repository": REPOSITORY,
        "version": version,
        "env": [{"name": "PATH", "value": f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"}],
        "upgradePolicy": {"autoUpgrade": True},
    }
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": "example-nicclusterpolicy", "namespace": NAMESPACE},
        "spec": {"ofedDriver": section},
    }


def hold(lab, name, node):
    """Start a pod that holds a share, and writes down how long."""
    mount = {"name": "record", "mountPath": HERE}
    container = {
        "name": "main",
        "image": VERBS,
        "command": ["sh", "-c", HOLDER],
        "resources": {"limits": {RESOURCE: "1"}},
        "volumeMounts": [mount],
        "readinessProbe": {"exec": {"command": ["ls", "/tmp/ready"]}, "periodSeconds": 1},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
        "volumes": [{"name": "record", "hostPath": {"path": HERE}}],
    }
    metadata = {"name": name, "namespace": "default", "labels": {"test": "drivers"}}
    cluster.apply(lab, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.ready(lab, name)


def let_go(lab, name):
    cluster.kubectl(lab, "delete", "pod", name, "--wait")


def record(lab, node):
    """What happened on a node: words in their order."""
    return cluster.shell(lab, node, f"touch {RECORD}; cat {RECORD}").split()


def held_in_peace(words):
    """Whether nothing was loaded or unloaded between a holder's first and last word."""
    holders = 0
    for word in words:
        holders += {HOLD: 1, LEAVE: -1}.get(word, 0)
        if holders and word in (LOAD, UNLOAD):
            return False
    return True


def current(lab):
    """The condition that says how far the drivers are."""
    conditions = cluster.get(lab, *POLICY).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "DriversCurrent"), {})


def until_waiting(lab, pod):
    """Until the policy says that a pod is waited for."""
    waiting.until(lab, f"the wait for {pod}", lambda: pod in current(lab).get("message", ""))


def until_recorded(lab, node, *words):
    waiting.until(lab, f"{words} on {node}", lambda: record(lab, node)[-len(words) :] == [*words])


def until_ready(lab, version):
    """Until all nodes run the driver of a version."""
    image_name = stand_in(version)

    def images():
        pods = cluster.get(lab, "-n", NAMESPACE, "pods", *DRIVERS[3:])["items"]
        return [pod["spec"]["containers"][0]["image"] for pod in pods]

    waiting.until(lab, f"the driver {version}", lambda: images() == [image_name] * len(NODES))
    cluster.wait(lab, *POLICY, "--for=condition=DriversCurrent")
    cluster.wait(lab, *POLICY, "--for=jsonpath={.status.state}=ready")


def test_no_driver_comes_or_goes_under_a_pod_that_holds_a_share(lab, helm):
    """First load, another image, labels that vanish, the policy's end, and the chart's."""
    hold(lab, "first", FIRST)
    cluster.apply(lab, policy("1"))
    until_recorded(lab, SECOND, LOAD)
    until_waiting(lab, "default/first")
    assert record(lab, FIRST) == [HOLD]
    let_go(lab, "first")
    until_ready(lab, "1")
    assert record(lab, FIRST) == [HOLD, LEAVE, LOAD]

    hold(lab, "second", FIRST)
    cluster.apply(lab, policy("2"))
    until_recorded(lab, SECOND, LOAD, UNLOAD, LOAD)
    until_waiting(lab, "default/second")
    let_go(lab, "second")
    until_ready(lab, "2")

    before = [record(lab, node) for node in NODES]
    label(lab, *(f"{key}-" for key in SYSTEM))
    gone = f"{FEATURE}/pci-15b3.present"
    waiting.until(lab, "the missing label's name", lambda: gone in reason(lab))
    assert [record(lab, node) for node in NODES] == before
    assert cluster.get(lab, *DRIVERS)["items"]
    label(lab, *(f"{key}={value}" for key, value in SYSTEM.items()))

    hold(lab, "third", SECOND)
    cluster.kubectl(lab, "delete", *POLICY, "--wait=false")
    until_recorded(lab, FIRST, LOAD, UNLOAD)
    code, printed = helm("uninstall", RELEASE)
    assert code
    assert f"drivers of a NicClusterPolicy run on nodes {SECOND}" in printed
    assert record(lab, SECOND)[-1] == HOLD
    let_go(lab, "third")
    until_recorded(lab, SECOND, LEAVE, UNLOAD)
    waiting.until(lab, "no driver's DaemonSet", lambda: not cluster.get(lab, *DRIVERS)["items"])
    code, printed = helm("uninstall", RELEASE, "--wait")
    assert code == 0, printed

    assert all(held_in_peace(record(lab, node)) for node in NODES)
    for node in cluster.get(lab, "nodes")["items"]:
        assert not node["spec"].get("unschedulable")


def reason(lab):
    return cluster.get(lab, *POLICY).get("status", {}).get("reason", "")
