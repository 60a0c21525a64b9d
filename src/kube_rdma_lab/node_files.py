"""Writes the files that differ from node to node, which a node finds under /lab.

Everything else is on the disk or the tree that all nodes share (node/root). A machine's first
program, node/root/sbin/lab-init, configures the node by these files; native/node.py adds those that
only a native node needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kube_rdma_lab import dns
from kube_rdma_lab.kubeconfig import kubeconfig
from kube_rdma_lab.pki import Authority, write_secret
from kube_rdma_lab.release import Release
from kube_rdma_lab.topology import CONTROL_PLANE_IP, POD_CIDR, NodeKind, NodeSpec, Topology


def write(folder: Path, node: NodeSpec, topology: Topology) -> None:
    """Write a node's files: its name, addresses, cards, routes, hosts and default CNI list."""
    (folder / "cni").mkdir(parents=True)
    (folder / "node.env").write_text(
        f"NODE={node.name}\nCLUSTER_IP={node.ip}\nGATEWAY={CONTROL_PLANE_IP}\n"
        f"RDMA_AT_BOOT={'yes' if node.rdma_at_boot else 'no'}\n"
    )
    (folder / "nics").write_text(nics(node))
    (folder / "vfs").write_text(vfs(node))
    (folder / "routes").write_text(
        "".join(f"{other.pod_cidr} {other.ip}\n" for other in topology.nodes if other != node)
    )
    (folder / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{each.ip} {each.name}\n" for each in topology.nodes)
    )
    _json(folder / "cni" / "10-lab.conflist", conflist(node))


def write_ssh(folder: Path, key: str) -> None:
    """Write the public SSH key that may open a shell on a machine."""
    (folder / "ssh").mkdir()
    (folder / "ssh" / "authorized_keys").write_text(f"{key}\n")


def write_kubernetes(
    files: Path,
    node: NodeSpec,
    authority: Authority,
    release: Release,
    gates: Mapping[str, bool],
) -> None:
    """Write the credentials and configurations of kubelet and kube-proxy.

    `gates` are the kubelet's feature gates. The kubelet's kubeconfig comes last: a native node,
    which runs already, waits for it.
    """
    folder = files / "kubernetes"
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(authority.certificate)
    authority.issue(node.name, hosts=(node.name, node.ip)).write(folder, "kubelet")
    proxy = authority.issue("system:kube-proxy")
    write_secret(folder / "kube-proxy.kubeconfig", kubeconfig(authority.certificate, proxy))
    _json(folder / "kubelet.json", kubelet_configuration(node, release, gates))
    _json(folder / "kube-proxy.json", proxy_configuration(node))
    kubelet = authority.issue(f"system:node:{node.name}", groups=("system:nodes",))
    beside = folder / "kubelet.kubeconfig.new"
    write_secret(beside, kubeconfig(authority.certificate, kubelet))
    beside.rename(folder / "kubelet.kubeconfig")


def nics(node: NodeSpec) -> str:
    """Return one line per card: MAC, name, address with prefix, Soft-RoCE link or -, kind, VFs."""
    lines = (
        f"{node.mac(position)} {nic.name} {node.rdma_ip(nic)}/24"
        f" {nic.rxe if nic.soft_roce and node.rdma_at_boot else '-'} {nic.kind} {nic.vfs}\n"
        for position, nic in enumerate(node.nics, start=1)
    )
    return "".join(lines)


def vfs(node: NodeSpec) -> str:
    """Return one line per virtual function: its card, its number, its MAC, its name."""
    lines = (
        f"{nic.name} {number} {node.vf_mac(position, number)} {nic.vf(number)}\n"
        for position, nic in enumerate(node.nics, start=1)
        for number in range(nic.vfs)
    )
    return "".join(lines)


def conflist(node: NodeSpec) -> dict[str, Any]:
    """Return the cluster's default pod network: a bridge per node, routed between nodes."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_cidr}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "mtu": 1500,
        "ipam": ipam,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge, portmap]}


def kubelet_configuration(
    node: NodeSpec, release: Release, gates: Mapping[str, bool]
) -> dict[str, Any]:
    """Return the KubeletConfiguration, with authentication and authorization of all clients.

    Fields that the release's kubelet does not know are left out.
    """
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/lab/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/lab/kubernetes/kubelet.crt",
        "tlsPrivateKeyFile": "/lab/kubernetes/kubelet.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "50Mi"},
        "failSwapOn": False,
        # There is no quota on the disk that /var/lib/kubelet lies on.
        "localStorageCapacityIsolation": False,
        "resolvConf": "",
        # A native node has the control groups of this machine, which may be of version 1.
        "failCgroupV1": node.kind is not NodeKind.NATIVE,
        "clusterDNS": [dns.SERVICE_IP],
        "clusterDomain": dns.DOMAIN,
        "topologyManagerPolicy": str(node.topology_manager),
        "featureGates": dict(gates),
    }
    unknown = release.differences.not_in_kubelet
    return {name: value for name, value in settings.items() if name not in unknown}


def proxy_configuration(node: NodeSpec) -> dict[str, Any]:
    """Return the KubeProxyConfiguration, in iptables mode."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": node.name,
        "clusterCIDR": POD_CIDR,
        "clientConnection": {"kubeconfig": "/lab/kubernetes/kube-proxy.kubeconfig"},
        # The kernel's own table size is enough for two nodes and needs no extra rights.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1))
