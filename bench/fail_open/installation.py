"""kube-rdma in the lab of native nodes, for the rig: shares on one node, claims on the other.

The installation is that of preset `default`; its agents run the same image through
stopping_agent.py. Cards are recorded ones, sixteen shares each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.fail_open.faults import FOLDER, Target
from bench.fail_open.steps import BREAKING, CLAIMS, SHARES, Fault, Way
from kube_rdma.install.installation import assignment
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.pools.documents.config import SERVE_LABEL as SERVE
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build.images import VERBS
from kube_rdma_lab.demo import scc
from kube_rdma_lab.installation import objects
from kube_rdma_lab.lab import Lab
from kube_rdma_lab.native.replay import as_ethernet

NAMESPACE, AGENT, LABEL = "kube-rdma", "kube-rdma-agent", "name=kube-rdma-agent"
PODS = "fail-open"  # the namespace of the pods that check
RESOURCE, CLASS = "rdma/nic", "rdma-shared"
SHARES_EACH = 8 * 16
NETWORK, POOL, TEMPLATE = "rail", "fail-open", "nic"
PROGRAM = Path(__file__).with_name("stopping_agent.py")
PLACE = "/fail-open"

Document = dict[str, Any]


class KubeRdma:
    """As Driver."""

    ways: tuple[Way, ...] = (SHARES, CLAIMS)
    faults: tuple[Fault, ...] = BREAKING
    expect: tuple[str, ...] = ("netdev", "verbs")

    @contextmanager
    def on(self, lab: Lab) -> Iterator[None]:
        """Nothing is taken away: the lab ends with the rig."""
        install(lab)
        yield

    def pod(self, way: Way) -> Document:
        """By a share and the annotation of networks, or by a claim."""
        return _pod(way)

    def target(self, lab: Lab, way: Way) -> Target:
        """The agent of a way's node."""
        addresses = cluster.get(lab, "endpointslices/kubernetes")["endpoints"][0]["addresses"]
        return Target(way.node, f"^python3.11 -I {PLACE}/{PROGRAM.name}", addresses[0])

    def renew(self, lab: Lab, way: Way) -> None:
        """A kubelet waits longer before each restart of a container: ten seconds, then twenty."""
        of_node = f"--field-selector=spec.nodeName={way.node}"
        words = ("delete", "pod", "-l", LABEL, of_node, "--grace-period=0", "--force")
        cluster.kubectl(lab, "-n", NAMESPACE, *words)
        cluster.rollout(lab, AGENT, NAMESPACE)


def install(lab: Lab) -> None:
    """Put kube-rdma on a lab, and what pods ask for."""
    as_ethernet(lab)
    scc.install_kinds(lab)
    made = [stopping(one) for one in objects([assignment("claims.enabled=true")], "default")]
    cluster.kubectl(lab, "label", "node", CLAIMS.node, f"{SERVE}=claims")
    cluster.apply(lab, *made, _program())
    cluster.rollout(lab, AGENT, NAMESPACE)
    cluster.wait(lab, "crd/ippools.kube-rdma.io", "--for=condition=Established")
    cluster.apply(lab, *_wanted())
    cluster.wait_for_resource(lab, RESOURCE, SHARES_EACH, node=SHARES.node)
    waiting.until(lab, "slices of claims", lambda: _is_offered(lab))


def stopping(made: Document) -> Document:
    """The agent's DaemonSet with the other program; all else as it is."""
    if made["kind"] != "DaemonSet":
        return made
    spec = made["spec"]["template"]["spec"]
    (agent,) = spec["containers"]
    agent["command"] = ["python3.11", "-I", f"{PLACE}/{PROGRAM.name}"]
    agent["volumeMounts"] += [
        {"name": "fail-open-program", "mountPath": PLACE, "readOnly": True},
        {"name": "fail-open", "mountPath": FOLDER},
    ]
    spec["volumes"] += [
        {"name": "fail-open-program", "configMap": {"name": PODS}},
        {"name": "fail-open", "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}},
    ]
    return made


def _program() -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": PODS, "namespace": NAMESPACE},
        "data": {PROGRAM.name: PROGRAM.read_text()},
    }


def _wanted() -> Iterator[Document]:
    """Where the pods are, and what they ask for."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PODS}}
    yield {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": POOL},
        "spec": {"ranges": [{"subnet": "10.77.0.0/20"}], "restSeconds": 0},
    }
    ipam = {"type": "kube-rdma-ipam", "pool": POOL}
    config = {"cniVersion": "1.0.0", "type": "kube-rdma", "rdma": False, "ipam": ipam}
    yield {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": NETWORK, "namespace": PODS},
        "spec": {"config": json.dumps(config)},
    }
    parameters = {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "ClaimParameters",
        "network": NETWORK,
    }
    devices = {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": CLASS}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}],
    }
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE, "namespace": PODS},
        "spec": {"spec": {"devices": devices}},
    }


def _is_offered(lab: Lab) -> bool:
    slices = (one["spec"] for one in cluster.get(lab, "resourceslices")["items"])
    mine = [one for one in slices if one["driver"] == DRIVER and one.get("nodeName") == CLAIMS.node]
    return bool(mine) and len(mine) == mine[0]["pool"]["resourceSliceCount"]


def _pod(way: Way) -> Document:
    """A pod that asks for one NIC in this way."""
    container: Document = {"name": "main", "image": VERBS}
    spec: Document = {
        "nodeSelector": {"kubernetes.io/hostname": way.node},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    metadata: Document = {"name": way.name, "namespace": PODS}
    if way.name == SHARES.name:
        container["resources"] = {"limits": {RESOURCE: "1"}}
        metadata["annotations"] = {"k8s.v1.cni.cncf.io/networks": NETWORK}
    else:
        container["resources"] = {"claims": [{"name": "nic"}]}
        spec["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": TEMPLATE}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
