"""Pods whose cards come by ResourceClaims, the agents that serve them, and what is seen of both.

For tests on native nodes. The agents are those of preset default with `claims.enabled`, and claims
serve the pools of all nodes. The cards are constructed, with so many shares each; interfaces stand
on their links, without the RDMA devices that only real ones have.
"""

import json
from contextlib import contextmanager

from kube_rdma.install.installation import assignment
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.pools.documents.config import SERVE_LABEL as SERVE
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from tests.kit import manifests
from tests.kit.pods import sleeping_pod

NAMESPACE, NODE = "kube-rdma", "node-1"
CARDS, SHARES = 8, 16
POOL, NETWORK, CLASS = "claims", "rail", "rdma"
CLAIMS = "resource.k8s.io/v1"
ADDRESS = "10.77.0.9"  # of the pool
FAILED = "FailedPrepareDynamicResources"


def network(name):
    """A network of whatever card is given, for any resource."""
    ipam = {"type": "kube-rdma-ipam", "pool": POOL}
    config = {"cniVersion": "1.0.0", "type": "kube-rdma", "rdma": False, "ipam": ipam}
    return manifests.network(name, config, "default")


@contextmanager
def agents(native, *values):
    """The agents with their driver, a class of its devices, a pool and a network, for a while.

    `values` are more of the installation's, as for --set.
    """
    scc.install_kinds(native)
    words = ("claims.enabled=true", *values)
    made = list(objects([assignment(word) for word in words], "default"))
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    more = (
        manifests.manifest(CLAIMS, "DeviceClass", CLASS, {"selectors": [selector]}),
        manifests.ip_pool(POOL, ranges=[{"subnet": "10.77.0.0/24"}], restSeconds=0),
        network(NETWORK),
    )
    cluster.kubectl(native, "label", "node", "--all", f"{SERVE}=claims")
    cluster.apply(native, *made)
    try:
        cluster.rollout(native, "kube-rdma-agent", NAMESPACE)
        cluster.wait(native, "crd/ippools.kube-rdma.io", "--for=condition=Established")
        cluster.apply(native, *more)
        until_offered(native)
        yield native
    finally:
        items = [*more, *(one for one in made if one["kind"] != "CustomResourceDefinition")]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        words = ("--ignore-not-found", "--cascade=foreground")
        cluster.kubectl(native, "delete", "-f", "-", *words, stdin=text)
        cluster.kubectl(native, "delete", "resourceslices", "--all")
        cluster.kubectl(native, "label", "node", "--all", f"{SERVE}-")


def slices(lab):
    """Those of the driver on the node, by uid."""
    listed = cluster.get(lab, "resourceslices")["items"]
    mine = (one for one in listed if one["spec"]["driver"] == DRIVER)
    return {
        one["metadata"]["uid"]: one["spec"]["devices"]
        for one in mine
        if one["spec"].get("nodeName") == NODE
    }


def address_of(device):
    """The PCI address of the card that a device of a slice is a part of."""
    return device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]


def until_offered(lab, besides=()):
    """Wait until all cards are offered, by none of the slices `besides`."""

    def offered():
        now = slices(lab)
        addresses = {address_of(one) for devices in now.values() for one in devices}
        return not now.keys() & set(besides) and len(addresses) == CARDS

    waiting.until(lab, "the slices of the node", offered)


def spec_of(parameters=None):
    """What a claim of one card asks for."""
    devices = {"requests": [{"name": "nic", "exactly": {"deviceClassName": CLASS}}]}
    if parameters is not None:
        document = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters", **parameters}
        devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": document}}]
    return {"devices": devices}


def claim(name, parameters=None):
    return manifests.manifest(
        CLAIMS, "ResourceClaim", {"name": name, "namespace": "default"}, spec_of(parameters)
    )


def template(name, parameters=None):
    return {**claim(name), "kind": "ResourceClaimTemplate", "spec": {"spec": spec_of(parameters)}}


def pod(name, **source):
    """A pod on the node whose container has the card of one claim or template."""
    made = sleeping_pod(
        name,
        nodeSelector={"kubernetes.io/hostname": NODE},
        terminationGracePeriodSeconds=1,
        resourceClaims=[{"name": "nic", **source}],
    )
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    return made


def of_template(name, parameters=None):
    """A pod with the template of its own claim, both of that name."""
    return template(name, parameters), pod(name, resourceClaimTemplateName=name)


@contextmanager
def applied(lab, *documents):
    """These objects for a while; what is gone by then is missed by nobody."""
    cluster.apply(lab, *documents)
    try:
        yield
    finally:
        for kind in ("pod", "resourceclaim", "resourceclaimtemplate", "resourcequota"):
            mine = [one for one in documents if one["kind"].lower() == kind]
            if names := [one["metadata"]["name"] for one in mine]:
                cluster.kubectl(lab, "delete", kind, *names, "--ignore-not-found")


def claim_status(lab, name):
    """What the claim of a pod says."""
    status = cluster.get(lab, f"pod/{name}")["status"]["resourceClaimStatuses"]
    return cluster.get(lab, f"resourceclaim/{status[0]['resourceClaimName']}")["status"]


def device_of(lab, name):
    """The device that the claim of a pod was given."""
    (result,) = claim_status(lab, name)["allocation"]["devices"]["results"]
    return result["device"]


def device_nodes(lab, name):
    """The files of RDMA devices in a pod."""
    return set(cluster.kubectl(lab, "exec", name, "--", "ls", "/dev/infiniband").split())


def interface(lab, name, link="net1"):
    """What a pod shows of an interface."""
    return cluster.kubectl(lab, "exec", name, "--", "ip", "-o", "address", "show", link)
