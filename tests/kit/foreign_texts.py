"""What reads texts of people, of pods' authors and of the node, each with one that it takes.

As foreign_parsers.py, for annotations, CNI configurations, policies, files in YAML, and what the
container runtime, the kubelet and device plugins leave on the node.
"""

from __future__ import annotations

import atexit
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from kube_base.errors import Refused
from kube_client import wire
from kube_rdma.adapters.cluster.kinds.own import DEFINITION
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SET
from kube_rdma.adapters.files.device_info import DeviceInfoFolder
from kube_rdma.adapters.kubelet.folders import topology_policy
from kube_rdma.adapters.runtime import cri
from kube_rdma.admission.documents import manifests, pod_manifest
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.documents import (
    cni_conf,
    network_definition,
    network_status,
    networks,
    pod_networks,
)
from kube_rdma.attach.rules import conflist, foreign_plugins
from kube_rdma.attach.rules.repair import is_others
from kube_rdma.attach.rules.requests import match_entries
from kube_rdma.lib.text import reader
from kube_rdma.model.attach.attachment import NetworkAsk, NetworkKind
from kube_rdma.model.attach.cni import ConfFile
from kube_rdma.model.device import PciAddress
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.kubernetes import PodState
from kube_rdma.model.pools import DeviceInfo
from kube_rdma.operator import cluster as operator
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY, policy_of
from kube_rdma.pools.documents import config
from kube_rdma.preflight.documents import read_plan, read_verdict
from kube_rdma.verify.rules.pods import OWN_STATUS, paired_pod
from kube_rdma_whereabouts import objects as whereabouts

from .foreign_parsers import META, POD_OBJECT, Parser, text_of

KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\ntopologyManagerPolicy: best-effort\n"
YAML_CONFIG = """\
# two pools
configList:
- resourceName: a
  resourcePrefix: rdma
  rdmaHcaMax: 10
  selectors: {vendors: ["15b3"], ifNames: [eth0, &b eth1], linkTypes: [infiniband]}
- {resourceName: 'b', rdmaHcaMax: 16, devices: ["ens\\u0031f0"]}
"""
RESOURCE_LIST = """\
resourceList:
- resourceName: vf
  resourcePrefix: rdma
  selectors: [{isRdma: true, pfNames: ["ens1f0#0-3"], drivers: [mlx5_core]}]
"""
NODE_POLICY = """\
apiVersion: kube-rdma.io/v1alpha1
kind: NodePolicy
metadata: {name: a}
spec:
  priority: 3
  nodeSelector: {a: b}
  pools:
  - {resource: rdma/hca, mode: sriov, selectors: [{vendors: ["15b3"]}]}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    metadata:
      annotations:
        k8s.v1.cni.cncf.io/networks: |
          [{"name": "rdma-net", "ips": ["10.0.0.7/24"]}]
    spec:
      containers:
      - {name: c, image: i, resources: {limits: {rdma/hca: "1"}}}
"""
ENTRIES = [
    {
        "name": "rdma-net",
        "namespace": "a",
        "ips": ["10.0.0.7/24", "fd00::7"],
        "mac": "02-00-0a-00-00-01",
        "interface": "net1",
        "deviceID": "0000:81:00.0",
        "cni-args": {"a": "x", "mellanox.infiniband.app": "y"},
        "default-route": ["10.0.0.1"],
    },
    {
        "name": "other",
        "infiniband-guid": "0200.0a00.0000.0001",
        "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 1000, "ingressBurst": 10},
        "cni-args": {"ips": ["10.0.0.8/24"]},
    },
]
POD_NETWORKS = [
    {
        "name": "rdma",
        "namespace": "a",
        "cniConf": {"name": "rdma", "from": "local"},
        "deviceConf": {"ifName": "eth1", "ips": ["10.0.0.7/24"], "mac": "02:00:0a:00:00:01"},
        "traffic": {"routes": {"extraRoutes": [{"dst": "10.8.0.0/16", "gw": "10.0.0.1"}]}},
    },
    {"cniConf": {"name": "rdma"}, "ipv4": "10.0.0.8", "route": {"dst": "10.9.0.0/16"}},
]
STATUS = [
    {"name": "cni", "interface": "eth0", "ips": ["10.0.0.2"], "default": True, "dns": {}},
    {
        "name": "default/rdma-net",
        "interface": "net1",
        "ips": ["10.0.0.7/24"],
        "mtu": 1500,
        "gidIndex": 3,
        "gid": "fe80::1",
        "card": "0000:81:00.0",
        "rdmaDevice": "mlx5_0",
        "dns": {},
    },
]
LIST = {
    "cniVersion": "1.0.0",
    "cniVersions": ["0.4.0", "1.1.0"],
    "name": "n",
    "disableCheck": False,
    "plugins": [
        {
            "type": "bridge",
            "capabilities": {"ips": True, "mac": True, "deviceID": True, "portMappings": True},
            "runtimeConfig": {"x": 1},
            "args": {"cni": {"a": "b"}},
            "ipam": {"type": "host-local", "subnet": "10.0.0.0/24"},
        },
        {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}},
    ],
}
MACVLAN = {
    "cniVersion": "0.3.1",
    "type": "macvlan",
    "master": "ens1f0",
    "mode": "bridge",
    "mtu": 1500,
    "ipam": {
        "type": "whereabouts",
        "datastore": "kubernetes",
        "range": "10.0.0.0/24",
        "exclude": ["10.0.0.0/30"],
        "gateway": "10.0.0.1",
        "routes": [{"dst": "10.8.0.0/16", "gw": "10.0.0.1"}],
    },
}
SRIOV = {
    "type": "sriov",
    "deviceID": "0000:81:00.2",
    "vlan": 100,
    "vlanQoS": 3,
    "min_tx_rate": 1,
    "max_tx_rate": 10,
    "spoofchk": "on",
    "trust": "off",
    "link_state": "auto",
    "pkey": "0x8001",
    "meta": {"resourceName": "rdma/vf", "ipRangesSource": "netDeviceSelf"},
    "ipam": {},
}
IMAGE = {"image": "i", "repository": "r.example.org/a", "version": "1"}
POLICY = {
    "ofedDriver": IMAGE | {"startupProbe": {"periodSeconds": 3}, "env": [{"name": "A"}]},
    "devicePlugin": IMAGE
    | {"config": json.dumps({"configList": [{"resourceName": "a", "devices": ["ens1f0"]}]})},
    "secondaryNetwork": {"cniPlugins": IMAGE, "multus": IMAGE | {"config": "x"}},
    "nvPeerDriver": IMAGE | {"gpuDriverSourcePath": "/run/nvidia/driver"},
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
            ]
        }
    },
    "tolerations": [{"key": "a", "operator": "Exists"}],
}
DEVICE_INFO = {
    "type": "pci",
    "version": "1.0.0",
    "pci": {"pci-address": "0000:81:00.0", "vhost-net": "/dev/vhost-net", "representor": "x"},
}
CRI_CONFIG = {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi"], "containerd": {"snapshotter": "a"}}
CRI_CNI = {"PluginDirs": ["/opt/cni/bin"], "PluginConfDir": "/etc/cni/net.d", "Networks": []}
CRI_SANDBOX = {
    "pid": 7,
    "runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/a"}]}},
}


@cache
def _folder() -> Path:
    """For readers that want a file; in memory where there is such a place."""
    memory = Path("/dev/shm")
    folder = Path(mkdtemp(prefix="kube-rdma-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def as_file(data: bytes, *names: str) -> Path:
    """The bytes as a file below a folder of this process."""
    path = _folder().joinpath(*names)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def as_text(data: bytes) -> str:
    """As a text, whatever the bytes are."""
    return data.decode(errors="replace")


def _asked(data: bytes) -> None:
    """An annotation, and what networks of kube-rdma and of other plugins make of it."""
    asks = networks.load(as_text(data), "a").asks
    named = (("a/rdma-net", MACVLAN), ("a/other", LIST), ("b/other", MACVLAN))
    definitions = [network_definition.load(*n.split("/"), text_of(conf), None) for n, conf in named]
    for wish in match_entries(asks, [one.network for one in definitions]):
        if wish.network.kind is NetworkKind.OTHER:
            foreign_plugins.call(wish, None)


def _defined(data: bytes) -> None:
    """A definition's configuration, and what its plugins are to read."""
    ask = NetworkAsk("a", "n", InterfaceName("net1"), "networks[0]")
    network = network_definition.load("a", "n", data, "rdma/hca").network
    for wish in match_entries((ask,), (network,)):
        if wish.network.kind is NetworkKind.OTHER:
            foreign_plugins.call(wish, PciAddress("0000:81:00.0"))


def _told(data: bytes) -> None:
    """Both annotations that tell a pod's networks have this form."""
    text = as_text(data)
    attached = tuple(network_status.own_attached(text))
    network_status.status(attached, before=text)
    network_status.own_status(attached, text, {"net1"})
    list(network_status.address_uses("a/b", text))
    is_others(PodState("a", "b", "u", ((network_status.ANNOTATION, text),)))
    paired_pod(PEER | {"metadata": META["metadata"] | {"annotations": {OWN_STATUS: text}}}, "")


def _on_the_node(data: bytes) -> None:
    """A file of the node's CNI configuration."""
    files = (ConfFile("10-a.conflist", as_text(data)), ConfFile("20-b.conf", as_text(data)))
    for decide in (conflist.plan, conflist.unplan):
        with suppress(Refused):
            decide(files)
    cni_conf.names(files)
    cni_conf.load("a", "n", data)


def _device_info(data: bytes) -> None:
    path = as_file(data, "devinfo", "cni", "x.json")
    info = DeviceInfo(PciAddress("0000:81:00.0"), ("mlx5_0",))
    DeviceInfoFolder(path.parents[1] / "dp").write_for_plugin(str(path), info)


def _runtime(data: bytes) -> None:
    info = dict.fromkeys(("config", "cniconfig", "info"), as_text(data))
    cri.runtime("containerd", "2.2.0", info)
    cri.netns(info)


def _manifests(data: bytes) -> None:
    for one in reader.read_all(data, "job.yaml"):
        if isinstance(one, Refused):
            raise one
        for manifest in manifests.manifests(one):
            for pod in manifests.pods(manifest):
                findings(pod_manifest.load(pod))


PEER = META | {"spec": {"nodeName": "n"}, "status": {"podIP": "10.0.0.1", "phase": "Running"}}
DIALECTS = {"configList": YAML_CONFIG, "resourceList": RESOURCE_LIST, "NodePolicy": NODE_POLICY}
RUN = {
    "turn": 0,
    "rail": 0,
    "latency": False,
    "client": True,
    "peer": "10.1.0.2",
    "port": 18515,
    "device": {"name": "mlx5_0", "port": 1, "gid_index": 3},
}
TEXT_PARSERS: Mapping[str, tuple[object, Parser]] = {
    "annotation networks": (ENTRIES, _asked),
    "annotation networks, as names": ("rdma-net, b/other@net5", _asked),
    "annotation pod-networks": (
        POD_NETWORKS,
        lambda data: pod_networks.load(as_text(data), "", "a", "cni"),
    ),
    "annotation pod-networks-definition": (
        [{"name": "rdma", "namespace": "a"}, {}],
        lambda data: pod_networks.load(json.dumps(POD_NETWORKS), as_text(data), "a", "cni"),
    ),
    "annotation network-status": (STATUS, _told),
    "annotation preflight-plan": (
        {"round": "0f", "pods": 2, "runs": [RUN]},
        lambda data: read_plan(as_text(data)),
    ),
    "annotation preflight-verdict": (
        {"round": "0f", "well": False, "why": "node-2 mlx5_0 is slow"},
        lambda data: read_verdict(as_text(data)),
    ),
    "NetworkAttachmentDefinition": (
        META | {"spec": {"config": json.dumps(MACVLAN)}},
        lambda data: _defined(wire.stored(DEFINITION, data).spec.config.encode()),
    ),
    "configuration of a network": (MACVLAN, _defined),
    "configuration of virtual functions": (SRIOV, _defined),
    "configuration of other plugins": (LIST, _defined),
    "CNI configuration of the node": (LIST, _on_the_node),
    "NicClusterPolicy": (
        META | {"spec": POLICY},
        lambda data: policy_of(wire.stored(NIC_CLUSTER_POLICY, data)),
    ),
    "DaemonSet": (
        META | {"spec": {}, "status": {"numberAvailable": 3}},
        lambda data: operator.progress_of(wire.stored(DAEMON_SET, data)),
    ),
    "pool of whereabouts": (
        META | {"spec": {"range": "10.0.0.0/24", "allocations": {"1": {"id": "x"}}}},
        lambda data: wire.stored(whereabouts.POOL, data),
    ),
    "runtime's configuration": (CRI_CONFIG, _runtime),
    "runtime's CNI": (CRI_CNI, _runtime),
    "runtime's sandbox": (CRI_SANDBOX, _runtime),
    "device information": (DEVICE_INFO, _device_info),
    "configuration of the kubelet": (
        KUBELET,
        lambda data: topology_policy((as_file(data, "config.yaml").parent,)),
    ),
    **{
        name: (text, lambda data: config.parse(data, "config.yaml"))
        for name, text in DIALECTS.items()
    },
    "manifest of a Job": (JOB, _manifests),
    "object in YAML": (POD_OBJECT, _manifests),
}
