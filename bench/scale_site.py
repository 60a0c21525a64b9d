"""The cluster of `scale`: a control plane without nodes, an installation's rights, real programs.

Behind bench/scale.py. Nodes are objects alone. The controller manager is ended once accounts are
there: it would find that no kubelet runs, and write that into each node. Agents have the service
account of an installation and its roles, and tokens that are bound to their nodes, as those of
their pods are; so the API server's fairness and the policy for agents count, which an administrator
would pass by.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.context import control_plane
from kube_base.errors import Unavailable
from kube_client import wire
from kube_client.connect import connect
from kube_rdma.install.installation import assignment, objects
from kube_rdma_lab import cluster, switch, waiting
from kube_rdma_lab.lab import Lab

NAME, SPACE = "scalebench", "kube-rdma-scale"
AGENT, CONTROLLER = "kube-rdma-agent", "kube-rdma-controller"
READY_SECONDS = 180.0
AT_ONCE = 32  # requests of what makes thousands of objects
PRESET = "vke"  # with networks and addresses; claims beside
CRDS = Path(__file__).parents[1] / "config" / "crds"
ROOM = "serviceaccounts"
KINDS = ("ippools", "ipblocks", "nodepolicies", "nodereports", "bandwidthchecks")
CNI = ("host/etc/cni/net.d", "host/opt/cni/bin")
_REQUESTS = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_REJECTED = re.compile(
    r"^apiserver_flowcontrol_rejected_requests_total\{[^}]*\} (\S+)$", re.MULTILINE
)

Document = dict[str, Any]


@contextmanager
def site() -> Iterator[Lab]:
    """A cluster with all definitions, rights and the policy for agents, and no node."""
    with control_plane(NAME) as lab:
        for path in sorted(CRDS.glob("*.yaml")):
            cluster.kubectl(lab, "create", "-f", str(path))
        cluster.wait(lab, "--for=condition=Established", *(f"crd/{n}.kube-rdma.io" for n in KINDS))
        layers = [assignment(f"namespace.name={SPACE}"), assignment("claims.enabled=true")]
        parts = ("namespace", "rights", "admission")
        made = [one for part in parts for one in objects(layers, PRESET, part)]
        cluster.apply(lab, *made)
        waiting.until(lab, "the agents' account", lambda: _has_accounts(lab))
        switch.turn(lab.home, "end", "kube-controller-manager")
        cluster.apply(lab, policy(16), pool())
        yield lab


def _has_accounts(lab: Lab) -> bool:
    accounts = {one["metadata"]["name"] for one in cluster.get(lab, "-n", SPACE, ROOM)["items"]}
    return {AGENT, CONTROLLER} <= accounts


def policy(shares: int) -> Document:
    """The configuration of all nodes: their cards by claims, so many shares of each."""
    pool = {"resource": "rdma/scale", "mode": "shared-multi", "shares": shares, "serve": "claims"}
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "NodePolicy",
        "metadata": {"name": "scale"},
        "spec": {"pools": [pool]},
    }


def is_rolled_out(lab: Lab, nodes: int) -> bool:
    """Whether the policy's status says that so many nodes have applied it as it is now."""
    policy = cluster.get(lab, "nodepolicy", "scale")
    status = policy.get("status", {})
    now = status.get("observedGeneration") == policy["metadata"]["generation"]
    return bool(now and status["applied"] == nodes)


def pool() -> Document:
    """The addresses of all pods."""
    return {
        "apiVersion": "kube-rdma.io/v1alpha1",
        "kind": "IPPool",
        "metadata": {"name": "scale"},
        "spec": {"network": "scale", "ranges": [{"subnet": "10.0.0.0/10"}]},
    }


def make_nodes(lab: Lab, names: Sequence[str]) -> None:
    """Make Node objects as a kubelet registers them, of which nothing runs."""
    asyncio.run(_make_nodes(lab.kubeconfig, names))


async def _make_nodes(kubeconfig: Path, names: Sequence[str]) -> None:
    """kubectl would send 50 a second."""
    async with connect(kubeconfig, user_agent="kube-rdma-bench/1") as api:

        async def make(name: str) -> None:
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            body = json.dumps({"metadata": meta, "status": {"nodeInfo": _info()}}).encode()
            await api.write(wire.ApiRequest("create", "", "v1", "nodes", body=body))

        for first in range(0, len(names), AT_ONCE):
            await asyncio.gather(*map(make, names[first : first + AT_ONCE]))


def _info() -> dict[str, str]:
    names = ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "architecture")
    more = ("operatingSystem", "kubeProxyVersion")
    return {
        **dict.fromkeys((*names, *more), ""),
        "containerRuntimeVersion": "containerd://2.2.0",
        "kubeletVersion": "v1.36.3",
    }


def kubeconfig(lab: Lab, account: str, *bound: str) -> Path:
    """A kubeconfig with a token of an account."""
    words = ("create", "token", account, "-n", SPACE, "--duration=24h", *bound)
    config = json.loads((lab.home / "pki/admin.kubeconfig").read_text())
    config["users"][0]["user"] = {"token": cluster.kubectl(lab, *words).strip()}
    path = lab.home / f"{account}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def inside(lab: Lab, *argv: str, python: str = sys.executable) -> list[str]:
    """A command of a Python, or of another program, in the lab's network."""
    return ["nsenter", f"--target={lab.state.pid}", "--net", "--", python, *argv]


@contextmanager
def program(lab: Lab, name: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of kube-rdma in the lab's network, its log beside the lab's."""
    with (lab.home / f"{name}.log").open("wb") as log:
        argv = ("-m", "kube_rdma.cli.main", *argv)
        process = subprocess.Popen(inside(lab, *argv), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def controller(lab: Lab) -> Iterator[int]:
    """The real controller with its own account; its process, once it leads."""
    config = kubeconfig(lab, CONTROLLER)
    words = ("controller", "--namespace", SPACE, "--kubeconfig", str(config))
    with program(lab, "controller", *words) as process:
        waiting.until(lab, "the controller's lease", lambda: _leads(lab, process.pid))
        yield process.pid


def _leads(lab: Lab, pid: int) -> bool:
    names = cluster.get(lab, "-n", SPACE, "leases")["items"]
    holders = [
        one["spec"].get("holderIdentity", "")
        for one in names
        if one["metadata"]["name"] == "kube-rdma-controller"
    ]
    return any(holders) and Path(f"/proc/{pid}").exists()


@contextmanager
def one_agent(lab: Lab, node: str) -> Iterator[int]:
    """One real agent as a process, on a node without cards; its process."""
    root = lab.home / "one-agent"
    for name in ("kubelet/device-plugins", "kubelet/plugins_registry", *CNI):
        (root / name).mkdir(parents=True, exist_ok=True)
    make_nodes(lab, [node])
    config = kubeconfig(lab, AGENT, "--bound-object-kind=Node", f"--bound-object-name={node}")
    words = (
        *("agent", "--role=plugin", "--role=node", f"--node-name={node}", "--networks", "--claims"),
        *("--namespace", SPACE, "--kubeconfig", str(config)),
        *(f"--kubelet-root={root}/kubelet", f"--state-dir={root}/state", f"--cdi-dir={root}/cdi"),
        *(f"--runtime-socket={root}/containerd.sock", f"--socket={root}/run/agent.sock"),
        f"--host={root}/host",
    )
    with program(lab, "agent", *words) as process:
        yield process.pid


def until_ready(lab: Lab) -> None:
    """Wait for an API server that was started; nothing else can be asked meanwhile."""
    argv, end = lab.kubectl("get", "--raw", "/readyz"), time.monotonic() + READY_SECONDS
    while subprocess.run(argv, capture_output=True, check=False).returncode:
        if time.monotonic() > end:
            raise Unavailable(f"the API server was not ready within {READY_SECONDS:g} s")
        time.sleep(0.2)


def metrics(lab: Lab) -> str:
    """What the API server counts; the same text for several questions."""
    return cluster.kubectl(lab, "get", "--raw", "/metrics")


def api_server_mib(lab: Lab) -> float:
    """What the API server's process has."""
    return value(metrics(lab), "process_resident_memory_bytes") / 2**20


def rejected(text: str) -> float:
    """Requests that the API server refused because it was too busy."""
    return sum(map(float, _REJECTED.findall(text)))


def value(text: str, name: str) -> float:
    """A series without labels."""
    match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def requests(text: str) -> float:
    """All requests that it has answered; a watch counts when it ends."""
    return sum(float(count) for _, count in _REQUESTS.findall(text))


def resident(pid: int | str, line: str = "VmRSS") -> float:
    """MiB that a process (or `self`) has, or with VmHWM the most that it had."""
    match = re.search(rf"{line}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) / 1024
