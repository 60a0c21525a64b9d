"""Drivers that load nothing, for native nodes: they write down when they would.

They are the lab's usual image, in which `sleep` is a script of the node (by PATH, from the folder
that the operator mounts). It writes when it loads and when it would unload; so do pods that hold
shares, into the same file of the node, whose order is the proof. Native nodes have no labels of a
system: they are given some.
"""

from contextlib import contextmanager

from kube_rdma_lab import cluster, signs, waiting
from kube_rdma_lab.build.images import VERBS
from tests.kit.recorder import DRIVER

NAMESPACE = "mlnx-network-operator"
NAME = "example-nicclusterpolicy"
POLICY = ("-n", NAMESPACE, f"nicclusterpolicy/{NAME}")
DRIVERS = ("-l", "=".join(DRIVER))
VERSIONS = ("1", "2")
FEATURE = "feature.node.kubernetes.io"
SYSTEM = {
    f"{FEATURE}/pci-15b3.present": "true",
    f"{FEATURE}/kernel-version.full": "6.1",
    f"{FEATURE}/system-os_release.ID": "debian",
    f"{FEATURE}/system-os_release.VERSION_ID": "12",
}
HERE = "/run/mellanox/drivers"  # on the node and in the driver's container
RECORD, PROGRAMS = f"{HERE}/record", f"{HERE}/stand-in"
LOAD, UNLOAD = "loads", "would-unload"
_TAG = "amd64-debian12-kver6.1"
_REPOSITORY = "localhost/lab"
_SLEEP = f"""\
#!/bin/sh
say() {{ echo "$1" >> {RECORD}; }}
trap 'say {UNLOAD}; exit 0' TERM
say {LOAD}
: > /.driver-ready
/usr/bin/sleep infinity &
wait
"""
_LSMOD = "#!/bin/sh\necho mlx5_core 1 0\n"


@contextmanager
def on_nodes(lab, nodes):
    """The nodes have images and labels of a system meanwhile."""
    for node in nodes:
        cluster.shell(lab, node, "mkdir", "-p", PROGRAMS)
        for name, text in (("sleep", _SLEEP), ("lsmod", _LSMOD)):
            script = f"cat > {PROGRAMS}/{name}; chmod 755 {PROGRAMS}/{name}"
            waiting.run(lab, lab.on_node(node, "sh", "-c", script), stdin=text)
        for version in VERSIONS:
            _image(lab, node, "tag", "--force", VERBS, image(version))
    label(lab, *with_system())
    yield
    label(lab, *without_system())
    for node in nodes:
        for version in VERSIONS:
            _image(lab, node, "rm", image(version))
        cluster.shell(lab, node, "rm", "-r", HERE)


def label(lab, *words):
    cluster.kubectl(lab, "label", "node", "--all", "--overwrite", *words)


def with_system():
    """The labels of a system, as kubectl writes them."""
    return [f"{key}={value}" for key, value in SYSTEM.items()]


def without_system():
    return [f"{key}-" for key in SYSTEM]


def image(version):
    return f"{_REPOSITORY}/stand-in-{version}:{_TAG}"


def _image(lab, node, *words):
    cluster.shell(lab, node, "ctr", "-n", "k8s.io", "images", *words)


def policy(version, *, parallel=1, **sections):
    """Another image is exchanged by the operator; PATH makes the stand-in of it."""
    driver = {
        "image": "stand-in",
        "repository": _REPOSITORY,
        "version": version,
        "env": [{"name": "PATH", "value": f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"}],
        "upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": parallel},
    }
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"ofedDriver": driver, **sections},
    }


def written(lab, node):
    """What happened on a node: words in their order."""
    return cluster.shell(lab, node, f"touch {RECORD}; cat {RECORD}").split()


def until_driven(lab, version, nodes):
    """Until these nodes run the driver of a version."""
    wanted = dict.fromkeys(nodes, image(version))

    def images():
        return {
            pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
            for pod in cluster.get(lab, "-n", NAMESPACE, "pods", *DRIVERS)["items"]
            if pod["spec"].get("nodeName") in wanted and signs.is_ready(pod)
        }

    waiting.until(lab, f"the driver {version}", lambda: images() == wanted)
