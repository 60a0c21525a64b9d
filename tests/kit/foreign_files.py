"""What reads what programs, plugins and people's own tools write, each with what it takes.

As foreign_parsers.py, for outputs of commands in pods, of CNI plugins and of credential plugins,
for kubeconfigs and bundles, and for objects of kube-rdma's own that anybody may edit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from kube_base.errors import Unavailable
from kube_client import wire
from kube_client.credentials import CredentialPlugin, Person
from kube_client.kubeconfig import Access, PluginEntry, ServerEntry, UserEntry, read_access
from kube_client.pod_commands import ERROR, CommandOutput
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cni import plugins
from kube_rdma.adapters.cni.plugins import ProcessOutcome
from kube_rdma.adapters.files import bundle
from kube_rdma.adapters.files.neighbours import read_neighbours
from kube_rdma.adapters.kernel import link_view
from kube_rdma.adapters.kubelet import folders
from kube_rdma.adapters.kubelet.folders import DeviceCheckpoint
from kube_rdma.cli.verify import earlier
from kube_rdma.controller import leadership as election
from kube_rdma.controller.leadership import ELECTION
from kube_rdma.controller.retirement import WEBHOOK_CONFIGURATIONS
from kube_rdma.ipam import cluster as ipam
from kube_rdma.model.attach.cni import Verb
from kube_rdma.model.attach.steps import PluginConf
from kube_rdma.model.doctor import Observation, ObservedLink, ObservedRoute
from kube_rdma.model.ipam import InterfaceName
from kube_rdma.model.verify import PerftestRun
from kube_rdma.resources.reader import named_pools
from kube_rdma.verify.rules.perftest import table
from kube_rdma.verify.rules.pods import paired_pod
from kube_rdma.verify.views import perftest_name
from kube_rdma_whereabouts import plan

from .foreign_parsers import META, Parser
from .foreign_texts import MACVLAN, PEER, as_file, as_text
from .nodes import device, function, node, position

DONE = {
    "metadata": {},
    "status": "Failure",
    "message": "command terminated with exit code 3",
    "reason": "NonZeroExitCode",
    "code": 500,
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}
TABLE = """\
 local address: LID 0000 QPN 0x0011 PSN 0x9c1a5d
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             97.50              97.41               0.185791
 131072     5000             97.60              97.52               0.092996
"""
CHECKPOINT = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "7d1c",
                "ContainerName": "main",
                "ResourceName": "rdma/hca",
                "DeviceIDs": {"-1": ["3"]},
                "AllocResp": "",
            }
        ],
        "RegisteredDevices": {"rdma/hca": ["1", "2", "3"]},
    },
    "Checksum": 1,
}
PROBED = """\
port mlx5_0 1 card 100 Gb/sec (4X EDR)
port mlx5_1 1 card 200 Gb/sec (4X HDR)
{"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1", "UCX_IB_GID_INDEX": "3", "NCCL_IB_HCA": "=mlx5_0:1"}
"""
PLUGIN_ERROR = {"cniVersion": "1.0.0", "code": 7, "msg": "no address", "details": "the range a"}
PLUGIN_RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "net1", "sandbox": "/run/netns/a"}],
    "ips": [{"address": "10.0.0.7/24", "gateway": "10.0.0.1", "interface": 0}],
    "routes": [{"dst": "0.0.0.0/0"}],
}
ELECTED = META | {
    "spec": {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-22T12:00:00.000000Z",
        "renewTime": "2026-11-22T12:00:05.000000Z",
        "leaseTransitions": 3,
    }
}
NODE_LEASE = {
    "metadata": META["metadata"]
    | {
        "name": "ipam.n",
        "annotations": {
            "kube-rdma.io/ipam-boot": "b",
            "kube-rdma.io/ipam-beat": "7",
            "kube-rdma.io/ipam-fenced": "false",
        },
    },
    "spec": {"holderIdentity": "journal", "leaseDurationSeconds": 200},
}
BLOCK = {
    "metadata": META["metadata"] | {"name": "default.10-0-0-0"},
    "spec": {
        "network": "default",
        "first": "10.0.0.0",
        "edition": 3,
        "holdings": [{"node": "n", "addresses": ["10.0.0.1", "10.0.0.4-10.0.0.9"]}],
        "pins": [{"owner": "b/a/net1", "address": "10.0.0.1"}],
    },
}
REPORT = META | {
    "status": {
        "agentVersion": "0.4.0",
        "summary": {"cards": 1, "healthy": 1},
        "cards": [{"id": "0000:81:00.0", "name": "mlx5_0", "ports": []}],
        "pools": [{"resource": "rdma/hca", "mode": "hca", "shares": 10, "healthy": 10, "cards": 1}],
    }
}
CREDENTIAL = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": "t", "expirationTimestamp": "2026-11-22T12:00:00Z"},
}
KUBECONFIG = {
    "apiVersion": "v1",
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "certificate-authority-data": "YQ==",
                "tls-server-name": "a",
            },
        }
    ],
    "users": [
        {
            "name": "u",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "login",
                    "args": ["a"],
                    "env": [{"name": "A", "value": "b"}],
                    "interactiveMode": "Never",
                }
            },
        }
    ],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "current-context": "x",
}
KUBECONFIG_YAML = """\
apiVersion: v1
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443", insecure-skip-tls-verify: true}
users:
- name: u
  user: &user
    token: abc
contexts:
- name: x
  context: {cluster: c, user: u}
current-context: x
"""
ROUTES = {"interfaces": ["eth0", "bond0"]}
_CARD = function(position(0x81), "ens1f0")
BUNDLE = bundle.encode(
    Observation(
        "node-1",
        survey=node(_CARD, devices=(device(0, _CARD.position, "ens1f0"),)).survey,
        links=(ObservedLink("ens1f0", 1500, up=True, addresses=("10.0.0.1/24",)),),
        routes=(ObservedRoute("ens1f0", "10.0.0.0/24"),),
        settings=(("net/ipv4/conf/all/rp_filter", "1"),),
    )
).decode()
WEBHOOKS = META | {
    "webhooks": [{"name": "w", "clientConfig": {"caBundle": "YQ==", "service": {"namespace": "a"}}}]
}
RUN = PerftestRun()
EARLIER = {
    "test": perftest_name(RUN),
    "pairs": [{"client": "a", "server": "b", "rail": 0, "figure": 97.5}],
}


def _ended(data: bytes) -> None:
    """How a command in a pod ended, and the sentence of it."""
    output = CommandOutput()
    output.take(bytes([ERROR]) + data)
    with suppress(Unavailable):
        output.check("sh in pod a")


def _failed(data: bytes) -> None:
    """What a CNI plugin prints: its answer to ADD, addresses, or why not."""
    plugins.failure("bridge", Verb.ADD, ProcessOutcome(1, data, data), "/host")
    with suppress(Unavailable):
        plugins.addresses("host-local", data, InterfaceName("net1"), "/run/netns/a")
    plugins.config(PluginConf("tuning", b'{"type": "tuning"}'), plugins.result("bridge", data))


def _elected(data: bytes) -> None:
    seen = election.observed(None, wire.stored(ELECTION, data).spec, 0.0)
    election.may_take(seen, "b", 100.0)


def _login(data: bytes) -> None:
    """What a credential plugin prints, and whether it has ended."""
    entry = PluginEntry(api_version=CREDENTIAL["apiVersion"], command="login")
    access = Access(ServerEntry(), UserEntry(), "kubeconfig")
    plugin = CredentialPlugin(
        entry, access, lambda: datetime(2026, 11, 22, tzinfo=UTC), Person(types=False, reads=False)
    )

    async def run() -> bytes:
        return data

    plugin._run = run  # type: ignore[method-assign]

    async def twice() -> None:
        for _ in range(2):
            await plugin.read()

    coroutine = twice()
    try:  # nothing in it waits, so it needs no loop
        coroutine.send(None)
    except StopIteration:
        return
    finally:
        coroutine.close()


def _kubeconfig(data: bytes) -> None:
    read_access([as_file(data, "kubeconfig")])


def _recorded(data: bytes) -> None:
    link_view.recorded_routes(as_file(data, "tree", link_view.ROUTES_FILE).parent)


def _checkpoint(data: bytes) -> None:
    DeviceCheckpoint(as_file(data, "kubelet", folders.NAME).parent).read()


def _report(data: bytes) -> None:
    if status := wire.stored(NODE_REPORT, data).status:
        for card in (*status.cards, *status.rejected):
            assert all(port.gbps is None or port.gbps >= 0 for port in card.ports)


def _whereabouts(data: bytes) -> None:
    """A network of whereabouts, as a plan to leave it reads it."""
    plan._attachments([wire.stored(DEFINITION, data)])


def _earlier(data: bytes) -> None:
    earlier(data, RUN, "run.json")


FILE_PARSERS: Mapping[str, tuple[object, Parser]] = {
    "table of perftest": (TABLE, lambda data: table(as_text(data))),
    "probe of a pod": (PROBED, lambda data: paired_pod(PEER, as_text(data))),
    "end of a command": (DONE, _ended),
    "error of a CNI plugin": (PLUGIN_ERROR, _failed),
    "answer of a CNI plugin": (PLUGIN_RESULT, _failed),
    "Lease of an election": (ELECTED, _elected),
    "Lease of a node": (NODE_LEASE, lambda data: ipam.lease(wire.stored(ipam.LEASE, data))),
    "IPBlock": (BLOCK, lambda data: ipam.stored_block(wire.stored(ipam.IP_BLOCK, data))),
    "NodeReport": (REPORT, _report),
    "ExecCredential": (CREDENTIAL, _login),
    "kubeconfig": (KUBECONFIG, _kubeconfig),
    "kubeconfig in YAML": (KUBECONFIG_YAML, _kubeconfig),
    "bundle": (BUNDLE, lambda data: bundle.decode(data, "bundle.json")),
    "silent nodes of a cluster": (
        {"nodes": [{"node": "node-1", "why": "it hangs"}]},
        lambda data: bundle.silent(data, "cluster.tar.gz"),
    ),
    "record of the kubelet": (CHECKPOINT, _checkpoint),
    "neighbours of ports": (
        {"mlx5_0/1": "leaf-1 Ethernet1/1"},
        lambda data: read_neighbours(as_file(data, "neighbours")),
    ),
    "pools of a network": (MACVLAN, lambda data: named_pools(as_text(data))),
    "recorded routes": (ROUTES, _recorded),
    "earlier run": (EARLIER, _earlier),
    "network of whereabouts": (META | {"spec": {"config": json.dumps(MACVLAN)}}, _whereabouts),
    "configuration of webhooks": (
        WEBHOOKS,
        lambda data: wire.stored(WEBHOOK_CONFIGURATIONS[0], data),
    ),
}
