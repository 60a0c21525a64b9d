"""Names of Services and pods: CoreDNS beside the API server, at the pods' nameserver address.

control_plane.py runs it in the supervisor's namespace, beside the other programs of the control
plane: a pod would cost an emulated node memory and time. So the Service kube-system/kube-dns
selects no pods; an EndpointSlice names the control plane's address.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from kube_rdma_lab.topology import CONTROL_PLANE_IP

DOMAIN = "cluster.local"
SERVICE_IP = "10.96.0.10"
USER = "system:coredns"
READY = ("127.0.0.1", 8181)  # where CoreDNS says whether it has read all Services
PORTS = (("dns", "UDP"), ("dns-tcp", "TCP"))


def corefile(kubeconfig: Path) -> str:
    """Return CoreDNS' configuration, which answers for names of the cluster and no others.

    A lab has no route out, so a name outside gets NXDOMAIN at once.
    """
    return f"""\
{DOMAIN} in-addr.arpa ip6.arpa {{
    bind {CONTROL_PLANE_IP}
    errors
    ready {":".join(map(str, READY))}
    kubernetes {{
        kubeconfig {kubeconfig}
        pods insecure
    }}
}}
. {{
    bind {CONTROL_PLANE_IP}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def command_line(binaries: Path, configuration: Path) -> list[str | Path]:
    """Return the command line of CoreDNS."""
    return [binaries / "coredns", "-conf", configuration]


def ready(address: tuple[str, int] = READY) -> bool:
    """Return whether CoreDNS' /ready answers with 200, as it does once all Services are read."""
    connection = http.client.HTTPConnection(*address, timeout=2)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def objects() -> str:
    """Return the manifest that CoreDNS needs before it starts: namespace, rights and Service."""
    items = (_namespace(), *_rights(), *_service())
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _namespace() -> dict[str, Any]:
    """Return the manifest of kube-system, because a new API server makes that one only later."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}


def _rights() -> tuple[dict[str, Any], ...]:
    """Return a role with what the plugin `kubernetes` watches, bound to CoreDNS' certificate."""
    verbs = ["list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["namespaces", "services"], "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
    ]
    api, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    named = {"apiVersion": api, "metadata": {"name": USER}}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": USER}
    subject = {"apiGroup": group, "kind": "User", "name": USER}
    return (
        {**named, "kind": "ClusterRole", "rules": rules},
        {**named, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    )


def _service() -> tuple[dict[str, Any], ...]:
    """Return CoreDNS' Service with its usual name and labels, and its endpoint."""
    ports = [{"name": name, "protocol": protocol, "port": 53} for name, protocol in PORTS]
    place = {"name": "kube-dns", "namespace": "kube-system"}
    labels = {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true"}
    belongs = {
        "kubernetes.io/service-name": "kube-dns",
        "endpointslice.kubernetes.io/managed-by": "kube-rdma-lab",
    }
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**place, "labels": labels},
            "spec": {"clusterIP": SERVICE_IP, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**place, "labels": belongs},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [CONTROL_PLANE_IP]}],
            "ports": ports,
        },
    )
