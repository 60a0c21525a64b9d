"""Installs what a run of chaos stands on: kube-rdma with networks and claims, pools, a network.

Half of the cards are given as shares of the device plugin, half by claims. On native nodes the
interfaces of constructed InfiniBand cards are Ethernet. There the journals lie on a small file
system of their own, so that it can be full; a machine's disk is its own. A RepairPolicy taints a
node with a card that is down; one node has a taint of somebody else besides.
"""

from __future__ import annotations

import json
from typing import Any

from chaos import sites
from chaos.sites import Site
from kube_rdma.install.installation import assignment
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.native.replay import as_ethernet

Document = dict[str, Any]

NAMESPACE, AGENT, CONTROLLER = "kube-rdma", "kube-rdma-agent", "kube-rdma-controller"
SHARES, CLAIMS = "rdma/shares", "rdma/claims"
POOL, NETWORK, CLASS = "chaos", "chaos", "chaos"
FOREIGN = "example.com/theirs=kept:PreferNoSchedule"  # a taint
SUBNET = "10.77.0.0/24"
JOURNALS, JOURNAL_SIZE = "/var/lib/kube-rdma", "4m"
VALUES = ("claims.enabled=true", "controller.repair=true")
SLOTS = 16  # shares of a card in mode shared-multi


def policy(site: Site) -> Document:
    """The agents' file: half of the cards by shares of the device plugin, half by claims."""
    pools = (
        {"resource": SHARES, "selectors": [{site.selector: list(site.by_share)}]},
        {
            "resource": CLAIMS,
            "selectors": [{site.selector: list(site.by_claim)}],
            "serve": "claims",
        },
    )
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": "chaos"},
        "spec": {"pools": [{**pool, "mode": "shared-multi"} for pool in pools]},
    }


def own_objects(site: Site) -> tuple[Document, ...]:
    """What a run needs besides the installation: a class of devices, a network, own objects."""
    ipam = {"type": "kube-rdma-ipam", "pool": POOL}
    config = {"cniVersion": "1.0.0", "type": "kube-rdma", "rdma": site.has_verbs, "ipam": ipam}
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return (
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": CLASS},
            "spec": {"selectors": [selector]},
        },
        *own_kinds(site),
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": NETWORK, "namespace": "default"},
            "spec": {"config": json.dumps(config)},
        },
    )


def own_kinds(site: Site) -> tuple[Document, Document]:
    """The objects of kube-rdma's kinds: the pool of the pods' addresses, and a RepairPolicy.

    A freed address may be given again at once. The scheduler still uses a node with the taint.
    """
    spec = {
        "when": {"healthyCardsBelow": len(site.by_share) + len(site.by_claim)},
        "taint": "PreferNoSchedule",
        "budget": {"nodes": len(sites.NODES)},
        "clearAfterSeconds": 10,
        "enforce": True,
    }
    return (
        {
            "apiVersion": "kube-rdma.io/v1alpha1",
            "kind": "IPPool",
            "metadata": {"name": POOL},
            "spec": {"ranges": [{"subnet": SUBNET}], "blockSize": 8, "restSeconds": 0},
        },
        {
            "apiVersion": "kube-rdma.io/v1alpha1",
            "kind": "RepairPolicy",
            "metadata": {"name": POOL},
            "spec": spec,
        },
    )


def installation(site: Site) -> list[Document]:
    """The objects of kube-rdma itself, with the pools of this file."""
    made = list(objects([*map(assignment, VALUES)], "default"))
    for document in made:
        if document["kind"] == "ConfigMap" and "policy.yaml" in document["data"]:
            document["data"] = {"policy.yaml": json.dumps(policy(site))}
    return made


def install(lab: Lab) -> None:
    """Install all of it on a fresh lab, and wait until every card is offered."""
    site = sites.of(lab)
    as_ethernet(lab)
    for spec in lab.topology.natives:
        cluster.shell(
            lab,
            spec.name,
            f"mkdir -p {JOURNALS}; mountpoint -q {JOURNALS} ||"
            f" mount -t tmpfs -o size={JOURNAL_SIZE} journals {JOURNALS}",
        )
    scc.install_kinds(lab)
    cluster.apply(lab, *installation(site))
    cluster.rollout(lab, AGENT, NAMESPACE)
    cluster.apply(lab, *own_objects(site))
    cluster.kubectl(lab, "taint", "node", sites.NODES[0], FOREIGN, "--overwrite")
    cluster.wait_for_resource(lab, SHARES, SLOTS * len(site.by_share))
