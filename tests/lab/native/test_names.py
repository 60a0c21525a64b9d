"""Names of RDMA addresses on a real API server, by which CoreDNS answers pods.

The controller runs from the installation's manifests with the value controller.names, so its rights
are those of its role. No card of a native node has a network, so the test writes the annotation as
an agent does, which the policy would let nobody else do; the address is of no IPPool.
"""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma.install.installation import assignment
from kube_rdma.names.cluster import OWN_SLICES
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # test_named_rails finds names in every run
NAMESPACE = "named"
NOT_MADE = ("CustomResourceDefinition", "DaemonSet")  # those of the lab; agents
FOUR, SIX = "198.51.100.5", "2001:db8::5"
NAME = f"trainer-0.rail-0.{NAMESPACE}.svc.cluster.local"
STATUS = [
    {"name": f"{NAMESPACE}/rail-0", "interface": "net1", "ips": [f"{FOUR}/24", f"{SIX}/64"]}
    | {"card": "0000:1a:00.0", "rdmaDevice": "mlx5_0"}
]


@pytest.fixture(scope="module")
def lab(native):
    """The controller with names, and a namespace with a pod that others can ask from."""
    scc.install_kinds(native)
    layers = [assignment(word) for word in ("controller.names=true", "admission.install=false")]
    made = [one for one in objects(layers, "default") if one["kind"] not in NOT_MADE]
    home = next(each["metadata"]["namespace"] for each in made if each["kind"] == "Deployment")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.apply(native, *made, space)
    cluster.wait(native, "-n", home, "deployment/kube-rdma-controller", "--for=condition=Available")
    pods = [sleeping_pod(name, namespace=NAMESPACE) for name in ("trainer-0", "asks")]
    pods[0]["metadata"]["labels"] = {"app": "trainer"}
    cluster.apply(native, *pods)
    cluster.ready(native, "trainer-0", "asks", namespace=NAMESPACE)
    yield native
    cluster.kubectl(native, "delete", "namespace", NAMESPACE)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    cluster.kubectl(native, "delete", "-f", "-", "--cascade=foreground", stdin=text)


def service(**spec):
    asks = {"kube-rdma.io/pods": "app=trainer", "kube-rdma.io/network": "rail-0"}
    meta = {"name": "rail-0", "namespace": NAMESPACE, "annotations": asks}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta} | {
        "spec": {"clusterIP": "None", "ports": [{"name": "nvme", "port": 4420}], **spec}
    }


def attach(lab, status):
    """Write a pod's interfaces as its agent does."""
    pair = f"kube-rdma.io/network-status={json.dumps(status)}"
    cluster.kubectl(lab, "-n", NAMESPACE, "annotate", "--overwrite", "pod/trainer-0", pair)


def found(lab, database="ahosts"):
    """The addresses that a pod finds by the name; none where there is no such name."""
    words = ("exec", "-n", NAMESPACE, "asks", "--", "getent", database, NAME)
    try:
        return {line.split()[0] for line in cluster.kubectl(lab, *words).splitlines()}
    except Unavailable:
        return set()


def test_a_pod_is_found_by_name_at_its_rail_addresses_and_goes_with_them(lab):
    cluster.apply(lab, service())
    attach(lab, STATUS)
    waiting.until(lab, "both addresses by name", lambda: found(lab) == {FOUR, SIX})
    slices = cluster.get(lab, "-n", NAMESPACE, "endpointslices")["items"]
    assert {each["addressType"] for each in slices} == {"IPv4", "IPv6"}
    assert all(each["ports"][0]["port"] == 4420 for each in slices)
    attach(lab, [])
    waiting.until(lab, "no address by name", lambda: not found(lab))
    assert not cluster.get(lab, "-n", NAMESPACE, "endpointslices")["items"]


def test_a_service_with_a_selector_is_refused_and_a_deleted_one_takes_its_slices_along(lab):
    attach(lab, STATUS)
    cluster.apply(lab, service())
    waiting.until(lab, "both addresses by name", lambda: found(lab) == {FOUR, SIX})
    # One without a selector is of both families, which this cluster grants to no other.
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "service/rail-0")
    cluster.apply(lab, service(selector={"app": "trainer"}))
    why = cluster.until_event(lab, "NamesRefused")
    assert "Remove spec.selector" in why
    own = (
        "-n",
        NAMESPACE,
        "endpointslices",
        "-l",
        OWN_SLICES,
    )
    waiting.until(lab, "no slice of kube-rdma", lambda: not cluster.get(lab, *own)["items"])
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "service/rail-0")
    cluster.apply(lab, service())
    waiting.until(lab, "both addresses by name", lambda: found(lab) == {FOUR, SIX})
    cluster.kubectl(lab, "-n", NAMESPACE, "delete", "service/rail-0")
    waiting.until(lab, "no slice of kube-rdma", lambda: not cluster.get(lab, *own)["items"])
