"""One NIC as a runtime gets it: the agent through its shim, and macvlan with host-local, in turns.

`measure` is a part of `attach`. The agent is that of a checkout, a process with an API server and
etcd that run beside it on this machine; the kubelet is a process that knows no pod. macvlan and
host-local are the programs of containernetworking/plugins. They need no API server, and sync
nothing. All of them are started by one process (`python -m bench.attach_programs ORDERS`) in the
network of the control plane, on one rail, and keep their records on one disk.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import checkout, scale_site
from bench.attach_kubelet import kubelet
from bench.attach_node import SETTLE_SECONDS, new_namespace
from bench.checkout import Checkout
from bench.context import Context
from bench.figures import Figure
from bench.programs import built
from bench.shim import BUILD, CALL, CONFIG, milliseconds
from kube_base.errors import Unavailable
from kube_rdma.install.installation import assignment, objects
from kube_rdma_lab import cluster
from kube_rdma_lab.lab import Lab

ROUNDS, WARM, PATIENCE = 40, 5, 60.0
RAIL, NETWORK, POOL = "rail0", "rail", "rail"
RIVAL = "macvlan_host_local"
RIVAL_CONFIG = {
    "cniVersion": "1.0.0",
    "name": NETWORK,
    "type": "macvlan",
    "master": RAIL,
    "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "10.200.0.0/16", "gateway": "10.200.0.1"}]],
    },
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to a NIC: a program, its configuration, and for whose pods."""

    name: str
    program: str
    config: str
    environment: Mapping[str, str]
    agent: int = 0  # its process, whose CPU counts too
    pods: tuple[tuple[str, str], ...] = ()  # name and uid of each


@dataclass(frozen=True, slots=True)
class Nic:
    """What one took."""

    name: str
    ms: float
    cpu_ms: float
    del_ms: float


def measure(context: Context) -> Iterator[Figure]:
    """Boot a control plane, start the agents, let pods come and go, take all down."""
    rounds = WARM + context.times(ROUNDS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="programs-")))
        lab = stack.enter_context(scale_site.site())
        networks(lab)
        ways = [
            stack.enter_context(agent(lab, one, folder / (one.prefix or "ours"), rounds))
            for one in checkout.checkouts()
        ]
        ways.append(rival(folder))
        orders = folder / "orders"
        orders.write_text(json.dumps({"rounds": rounds, "ways": [asdict(way) for way in ways]}))
        argv = scale_site.inside(lab, "-m", "bench.attach_programs", str(orders))
        done = subprocess.run(argv, cwd=checkout.HERE, stdout=subprocess.PIPE, check=True)
    yield from figures([Nic(**one) for one in json.loads(done.stdout)])


def figures(nics: list[Nic]) -> Iterator[Figure]:
    """The median of each way, and what the agents' are by the rival's."""
    by_name: dict[str, list[Nic]] = {}
    for nic in nics:
        by_name.setdefault(nic.name, []).append(nic)
    plain = by_name[RIVAL]
    for name, every in by_name.items():
        prefix = f"{name}_" if name == RIVAL else f"{name}with_api_server_"
        for key in ("ms", "cpu_ms", "del_ms"):
            value = median(getattr(one, key) for one in every)
            yield Figure(f"{prefix}{key}", value, "ms", "", "one NIC: the program, and its agent")
            if name != RIVAL and key == "ms":
                ratio = value / median(one.ms for one in plain)
                note = "with a real API server, through the shim"
                yield Figure(f"{name}one_nic_to_{RIVAL}", ratio, "×", "≤ 2", note)


def networks(lab: Lab) -> None:
    """The definition of a network on the rail, with a pool of addresses."""
    wanted = objects([assignment("crds.networkAttachmentDefinitions=true")], "", "definitions")
    cluster.apply(lab, *(one for one in wanted if "cncf" in one["metadata"]["name"]))
    cluster.wait(lab, "--for=condition=Established", "crd", "--all")
    ipam = {"type": "kube-rdma-ipam", "pool": POOL}
    config = {"cniVersion": "1.0.0", "type": "macvlan", "master": RAIL, "ipam": ipam}
    ranges = [{"subnet": "10.100.0.0/16", "gateway": "10.100.0.1"}]
    cluster.apply(
        lab,
        {
            "apiVersion": "kube-rdma.io/v1alpha1",
            "kind": "IPPool",
            "metadata": {"name": POOL},
            "spec": {"ranges": ranges},
        },
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": NETWORK, "namespace": "default"},
            "spec": {"config": json.dumps(config)},
        },
    )


@contextmanager
def agent(lab: Lab, of: Checkout, root: Path, rounds: int) -> Iterator[Way]:
    """The agent of a checkout with its pods, as soon as it gives addresses."""
    node = root.name.strip("_")
    layer, config = root / "layer", root / "config"
    program = layer / "shim" / platform.machine() / "kube-rdma"
    for folder in (program.parent, *(root / name for name in scale_site.CNI)):
        folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, BUILD, platform.machine(), program, "--test"], check=True)
    config.write_bytes(CONFIG)
    pods_network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}
    (root / scale_site.CNI[0] / "10-pods.conflist").write_text(json.dumps(pods_network))
    (root / scale_site.CNI[1] / "bridge").touch(0o755)
    scale_site.make_nodes(lab, [node])
    pods = made_pods(lab, node, rounds)
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    access = scale_site.kubeconfig(lab, scale_site.AGENT, *bound).rename(root / "kubeconfig")
    words = (
        *("agent", "--role=plugin", "--role=node", f"--node-name={node}", "--networks"),
        *("--namespace", scale_site.SPACE, "--kubeconfig", str(access), f"--host={root}/host"),
        *(f"--kubelet-root={root}/kubelet", f"--state-dir={root}/state", f"--cdi-dir={root}/cdi"),
        *(f"--runtime-socket={root}/cri.sock", f"--socket={root}/run/kube-rdma/agent.sock"),
    )
    # As in an image, the package has a shim.
    conf = of.folder / "src/kube_rdma/adapters/cni/conf"
    mount = f"mount -t overlay none -o lowerdir={layer}:{conf} {conf}"
    shell = ("-c", f'{mount} && exec "$0" "$@"', of.program, *words)
    command = scale_site.inside(lab, "--mount", "sh", *shell, python="unshare")
    with ExitStack() as stack:
        stack.enter_context(kubelet(root / "kubelet"))
        log = stack.enter_context((lab.home / f"agent-{node}.log").open("wb"))
        it = subprocess.Popen(command, stdout=log, stderr=log, env=of.environment())
        stack.callback(it.wait)
        stack.callback(it.terminate)
        environment = {**CALL, "KUBE_RDMA_ROOT": str(root)}
        way = Way(of.prefix, str(program), str(config), environment, it.pid, pods)
        until_ready(way, lab)
        yield way


def until_ready(way: Way, lab: Lab) -> None:
    """Wait until the agent's STATUS says that it can attach."""
    end = time.monotonic() + PATIENCE
    while True:
        with Path(way.config).open("rb") as config:
            environment = {**way.environment, "CNI_COMMAND": "STATUS"}
            done = subprocess.run(
                [way.program], env=environment, stdin=config, capture_output=True, check=False
            )
        if done.returncode == 0:
            return
        if time.monotonic() > end:
            raise Unavailable(
                f"the agent is not ready: {done.stdout.decode()}; {lab.home} has logs"
            )
        time.sleep(0.2)


def made_pods(lab: Lab, node: str, count: int) -> tuple[tuple[str, str], ...]:
    """Pods of a node that ask for the network."""
    container = {"name": "main", "image": "none"}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{node}-{number}",
                "annotations": {"k8s.v1.cni.cncf.io/networks": NETWORK},
            },
            "spec": {"nodeName": node, "containers": [container]},
        }
        for number in range(count)
    ]
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl(lab, "create", "-f", "-", stdin=document)
    made = cluster.get(lab, "pods", f"--field-selector=spec.nodeName={node}")
    return tuple((one["metadata"]["name"], one["metadata"]["uid"]) for one in made["items"])


def rival(folder: Path) -> Way:
    """macvlan with host-local."""
    programs = built("plugins")
    config = folder / "rival"
    ipam = {**RIVAL_CONFIG["ipam"], "dataDir": str(folder / "store")}  # type: ignore[dict-item]
    config.write_text(json.dumps({**RIVAL_CONFIG, "ipam": ipam}))
    environment = {**CALL, "CNI_IFNAME": "net1", "CNI_PATH": str(programs)}
    return Way(RIVAL, str(programs / "macvlan"), str(config), environment)


# The process that is the runtime.


def spent_ms(process: int) -> float:
    """CPU of all threads of a process, and of programs that ended (Documentation/scheduler)."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = 1000 * (ended.ru_utime + ended.ru_stime)
    if process:
        threads = Path(f"/proc/{process}/task").glob("*/schedstat")
        spent += sum(int(one.read_text().split()[0]) for one in threads) / 1e6
    return spent


def nic(way: Way, number: int) -> Nic:
    """ADD and DEL in a new namespace."""
    netns = new_namespace()
    name, uid = way.pods[number] if way.pods else (f"pod-{number}", f"uid-{number}")
    pod = f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}"
    call = {
        **way.environment,
        "CNI_CONTAINERID": f"{way.name or 'ours'}{number}".replace("_", ""),
        "CNI_NETNS": f"/proc/{os.getpid()}/fd/{netns}",
        "CNI_ARGS": f"IgnoreUnknown=1;{pod}",
    }
    time.sleep(SETTLE_SECONDS)
    before = spent_ms(way.agent)
    took = milliseconds(way.program, {**call, "CNI_COMMAND": "ADD"}, Path(way.config))
    spent = spent_ms(way.agent) - before
    ended = milliseconds(way.program, {**call, "CNI_COMMAND": "DEL"}, Path(way.config))
    os.close(netns)
    return Nic(way.name, took, spent, ended)


def main(orders: Path) -> None:
    """Measure in turns, in the order A B C C B A."""
    order: dict[str, Any] = json.loads(orders.read_text())
    for words in (
        (RAIL, "mtu", "9000", "type", "veth", "peer", "name", "far0"),
        ("far0", "up"),
        (RAIL, "up"),
    ):
        act = "add" if "type" in words else "set"
        subprocess.run(("ip", "link", act, *words), check=True)
    ways = [Way(**way) for way in order["ways"]]
    nics: list[Nic] = []
    for number in range(order["rounds"]):
        round_ = [nic(way, number) for way in ways]
        nics += round_ if number >= WARM else []
        ways.reverse()
    print(json.dumps([asdict(one) for one in nics]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
