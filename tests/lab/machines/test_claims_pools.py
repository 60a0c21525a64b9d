"""Pools of cards by claims where there are verbs: whole cards, a virtual function, shared cards.

What needs no RDMA device is in native/test_claims.py; test_claims.py moves a node below a transfer.
Here the installation has these three pools and no other, and claims serve them all.
"""

import json
import re

import pytest

from kube_rdma.install.installation import assignment
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.demo.perftest import in_pod, measure
from kube_rdma_lab.installation import objects
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # a second installation, and transfers between emulated machines
NODES = NODE, OTHER = ("node-1", "node-2")
NAMESPACE, AGENT = "kube-rdma", "kube-rdma-agent"
OWN, FUNCTION, SHARED = "lab/own", "lab/function", "lab/shared"
POOL = "claims"
CARD, PHYSICAL, COMMON = "ens2f0", "ens4f0", "ens3f0"
GONE = ("--ignore-not-found", "--grace-period=1", "--wait")
# Each pod names the device of its own card and the GID of its address there.
WRITE_TEST = ("sh", "-c", '. nccl_env.sh && exec ib_write_bw -d "${UCX_NET_DEVICES%:*}" "$@"')
NUMBERS = ("perftest", "-n", "300", "-u", "18", "-F", "--report_gbits")


def configuration():
    """A whole card, the functions of another, and a card that pods share."""
    pools = [
        {"resource": OWN, "mode": "exclusive", "selectors": [{"interfaces": [CARD]}]},
        {
            "resource": FUNCTION,
            "mode": "sriov",
            "selectors": [{"physicalFunctions": [PHYSICAL], "rdma": False}],
        },
        {
            "resource": SHARED,
            "mode": "shared-multi",
            "shares": 4,
            "selectors": [{"interfaces": [COMMON]}],
        },
    ]
    return manifests.node_policy("claims", *[pool | {"serve": "claims"} for pool in pools])


@pytest.fixture(scope="module")
def pools(lab):
    """Both nodes offer the devices of the three pools to claims, with classes and addresses."""
    scc.install_kinds(lab)
    values = ("claims.enabled=true", f"agent.config='{json.dumps(configuration())}'")
    addresses = manifests.ip_pool(POOL, ranges=[{"subnet": "10.77.0.0/24"}], restSeconds=0)
    classes = (
        device_class("own", OWN),
        device_class("function", FUNCTION),
        device_class("shared", SHARED),
    )
    made = objects([assignment(word) for word in values], "default")
    cluster.apply(lab, *made, addresses, *classes)
    try:
        cluster.rollout(lab, AGENT, NAMESPACE)
        for resource, count in ((OWN, 2), (FUNCTION, 4), (SHARED, 2)):
            what = f"{count} devices of {resource}"
            waiting.until(lab, what, lambda r=resource, n=count: offered(lab, r) >= n)
        yield lab
    finally:
        cluster.kubectl(lab, "delete", "pods,resourceclaimtemplates", "--all", *GONE)
        items = [one for one in made if one["kind"] != "CustomResourceDefinition"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, *classes]})
        words = ("--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(lab, "delete", "ippool", POOL, *words)
        cluster.kubectl(lab, "delete", "-f", "-", *words, stdin=text)
        cluster.kubectl(lab, "delete", "resourceslices", "--all")


def inside(lab, pod, script):
    return cluster.kubectl(lab, "exec", pod, "--", "sh", "-c", script)


def place(lab, pod, address):
    """A pod as a place to run perftest in."""
    return in_pod(lab, pod, address)


def device_class(name, resource):
    attribute = f'device.attributes["{DRIVER}"].resource == "{resource}"'
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}" && {attribute}'}}
    return manifests.manifest("resource.k8s.io/v1", "DeviceClass", name, {"selectors": [selector]})


def pod(name, node, class_name, **parameters):
    """A pod with a device of a class as `net1`, and the template of its claim."""
    document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters", **parameters}
    devices = {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": class_name}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": document}}],
    }
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }
    made = sleeping_pod(
        name,
        nodeSelector={"kubernetes.io/hostname": node},
        terminationGracePeriodSeconds=1,
        resourceClaims=[{"name": "nic", "resourceClaimTemplateName": name}],
    )
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    return template, made


def offered(lab, resource):
    """How many devices of a resource the slices have."""
    slices = [one["spec"] for one in cluster.get(lab, "resourceslices")["items"]]
    devices = [device for spec in slices for device in spec.get("devices", ())]
    return sum(
        device["attributes"].get("resource", {}).get("string") == resource for device in devices
    )


def links(lab, node):
    """The names of a node's interfaces."""
    return {link["ifname"] for link in json.loads(cluster.shell(lab, node, "ip", "-j", "link"))}


def test_whole_cards_of_claims_talk_and_come_home(pools):
    """Each pod has the node's own card as net1, with its RDMA device; ends give both back."""
    names = {"own-1": NODE, "own-2": OTHER}
    documents = [each for name, node in names.items() for each in pod(name, node, "own", pool=POOL)]
    before = {node: links(pools, node) for node in names.values()}
    assert all(CARD in seen for seen in before.values())
    cluster.apply(pools, *documents)
    cluster.ready(pools, *names)
    assert all(CARD not in links(pools, node) for node in names.values())
    ends = [place(pools, name, address(pools, name)) for name in names]
    outcome = measure(pools, *ends, (*WRITE_TEST, *NUMBERS))
    assert outcome.addresses == {end.address for end in ends}
    cluster.kubectl(pools, "delete", "pod", *names, *GONE)
    for node, seen in before.items():
        waiting.until(pools, f"the cards of {node}", lambda n=node, s=seen: s <= links(pools, n))


def test_a_function_of_a_claim_is_the_pods_interface_and_comes_home(pools):
    """The one that the scheduler allocated, by its PCI address."""
    before = links(pools, OTHER)
    cluster.apply(pools, *pod("function", OTHER, "function", type="host-device", pool=POOL))
    cluster.ready(pools, "function")
    _, device = device_of(pools, "function")
    shown = inside(pools, "function", "readlink -f /sys/class/net/net1/device").strip()
    assert shown.rpartition("/")[2] == device.replace("-", ":", 2).replace("-", ".")
    assert address(pools, "function").startswith("10.77.0.")
    cluster.kubectl(pools, "delete", "pod", "function", *GONE)
    waiting.until(pools, "the function", lambda: before <= links(pools, OTHER))


def address(lab, pod):
    """The pod's address on net1, as its own namespace shows it."""
    shown = inside(lab, pod, "ip -4 -o address show dev net1")
    return re.search(r"inet ([\d.]+)/24", shown)[1]


def test_pods_of_one_shared_card_talk_over_it(pools):
    """Two pods of a node hold slots of the same device, and each talks with a pod of the other."""
    names = {"left": NODE, "right": NODE, "far": OTHER}
    cluster.apply(
        pools,
        *(each for name, node in names.items() for each in pod(name, node, "shared", pool=POOL)),
    )
    cluster.ready(pools, *names)
    devices = {name: device_of(pools, name) for name in names}
    assert devices["left"] == devices["right"] != devices["far"]
    far = place(pools, "far", address(pools, "far"))
    for name in ("left", "right"):
        end = place(pools, name, address(pools, name))
        assert measure(pools, far, end, (*WRITE_TEST, *NUMBERS)).addresses == {
            far.address,
            end.address,
        }
    cluster.kubectl(pools, "delete", "pod", *names, *GONE)


def device_of(lab, pod):
    """The pool and the name of the device that a pod's claim was given."""
    (claim,) = cluster.get(lab, f"pod/{pod}")["status"]["resourceClaimStatuses"]
    status = cluster.get(lab, f"resourceclaim/{claim['resourceClaimName']}")["status"]
    (result,) = status["allocation"]["devices"]["results"]
    return result["pool"], result["device"]
