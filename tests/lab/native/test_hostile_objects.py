"""A hundred hostile objects of each kind, and 2,000 silent connections, on a real cluster.

No process of kube-rdma restarts, the agent stays small, and a pod of another tenant starts as one
of a control in the same run. Each object is as large as the API server stores of its kind.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.api_client import ApiClient
from tests.kit import manifests
from tests.kit.claiming import (
    CLAIMS,
    CLASS,
    NAMESPACE,
    NETWORK,
    NODE,
    agents,
    applied,
    of_template,
    pod,
)
from tests.kit.pods import sleeping_pod

pytestmark = pytest.mark.slow  # it stores a gigabyte

COUNT, HOSTILE = 100, "hostile"
SHARED = "default"  # the namespace of the network, which everybody may name
KIB, MIB = 1 << 10, 1 << 20
MOST_MEMORY, MOST_CPU, MOST_RATIO = 50 * MIB, 1.0, 2.0
CONNECTIONS, MOST_OF_CONNECTIONS = 2_000, 64 * MIB
ESCAPES = "\x1b[2J\u202e\n; touch PWNED #"
FILLED = "x" * 10 * KIB
OWN = "kube-rdma.io/v1alpha1"
COUNTS = {"shares": 1, "healthy": 1, "cards": 1}
NODE_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)


def metadata(number, **more):
    return {"name": f"hostile-{number}", "namespace": HOSTILE, **more}


def hostile_pod(number):
    """An annotation at its limit that nests as deep as it can, and a megabyte of environment."""
    deep = (
        "[" * (100 * KIB) if number % 2 else json.dumps([{"name": f"n{n}"} for n in range(10_000)])
    )
    notes = {"k8s.v1.cni.cncf.io/networks": deep, "kube-rdma.io/needs-restart": "{" * KIB}
    made = sleeping_pod(f"hostile-{number}", namespace=HOSTILE, annotations=notes, nodeName=NODE)
    made["spec"]["containers"][0]["env"] = [{"name": f"E{n}", "value": FILLED} for n in range(90)]
    made["spec"]["terminationGracePeriodSeconds"] = 0
    return made


def refused_pod(number):
    """A pod as large that is refused at once: its network is not there."""
    made = hostile_pod(number)
    made["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/networks": "absent"}
    return made


def hostile_network(number):
    """A megabyte of excludes."""
    excludes = [f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}/32" for n in range(50_000)]
    ipam = {"type": "whereabouts", "range": "10.0.0.0/8", "exclude": excludes}
    config = {"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "ipam": ipam}
    kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    return {**kind, "metadata": metadata(number), "spec": {"config": json.dumps(config)}}


def user_of_network(number):
    """A pod that names a hostile network."""
    notes = {"k8s.v1.cni.cncf.io/networks": f"{HOSTILE}/hostile-{number}"}
    return sleeping_pod(f"user-{number}", namespace=HOSTILE, annotations=notes, nodeName=NODE)


def hostile_pool(number):
    """As many ranges and excludes as the definition has room for."""
    first = f"10.{number}"
    ranges = [{"subnet": f"{first}.{n}.0/24"} for n in range(64)]
    excludes = [f"{first}.{n // 16}.{n % 16 * 16}" for n in range(1_024)]
    spec = {
        "ranges": [
            {**one, "exclude": excludes[n * 16 : n * 16 + 16]} for n, one in enumerate(ranges)
        ]
    }
    return {"apiVersion": OWN, "kind": "IPPool", "metadata": metadata(number), "spec": spec}


def hostile_spec(number):
    """As many parameters as a claim may have; every other one has selectors that never end."""
    texts = ("!" * 400 + "true", "true" + " && true" * 900) if number % 2 else ()
    selectors = [{"cel": {"expression": text}} for text in texts]
    exactly = {"deviceClassName": CLASS, "selectors": selectors}
    parameters = {"apiVersion": OWN, "kind": "ClaimParameters", "network": FILLED[: 9 * KIB]}
    opaque = {"opaque": {"driver": "kube-rdma.io", "parameters": parameters}}
    requests = [{"name": f"r{n}", "exactly": exactly} for n in range(32 if number % 2 else 1)]
    return {"devices": {"requests": requests, "config": [opaque] * 32}}


def hostile_claim(number):
    kind = {"apiVersion": CLAIMS, "kind": "ResourceClaim"}
    return {**kind, "metadata": metadata(number), "spec": hostile_spec(number)}


def hostile_template(number):
    made = hostile_claim(number)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def user_of_claim(number, source="resourceClaimName"):
    """A pod that has a hostile claim."""
    made = pod(f"user-{number}", **{source: f"hostile-{number}"})
    made["metadata"]["namespace"] = HOSTILE
    return made


user_of_template = partial(user_of_claim, source="resourceClaimTemplateName")


def hostile_check(number):
    """What the definition preserves of a pod, and no pod has."""
    spec = {
        "containers": [{"name": "c", "image": ESCAPES}],
        "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "gone"}],
        "more": FILLED * 80,
    }
    return manifests.manifest(OWN, "BandwidthCheck", metadata(number), {"template": {"spec": spec}})


def hostile_daemon_set(number):
    """One that looks like a device plugin, with an image of two lines."""
    made = sleeping_pod(f"hostile-{number}", namespace=HOSTILE, nodeSelector={"no": "node"})
    made["metadata"]["labels"] = {"name": f"hostile-{number}"}
    (container,) = made["spec"]["containers"]
    container["image"] = f"mellanox/k8s-rdma-shared-dev-plugin:v1{ESCAPES}"
    container["volumeMounts"] = [{"name": "c", "mountPath": "/k8s-rdma-shared-dev-plugin"}]
    container["env"] = [{"name": f"E{n}", "value": FILLED} for n in range(90)]
    path = "/var/lib/kubelet/device-plugins"
    made["spec"]["volumes"] = [
        {"name": "dp", "hostPath": {"path": path}},
        {"name": "c", "configMap": {"name": "devices"}},
    ]
    spec = {"selector": {"matchLabels": made["metadata"]["labels"]}, "template": made}
    return manifests.manifest("apps/v1", "DaemonSet", metadata(number), spec)


def hostile_node(number):
    """A node whose kubelet says of itself what it likes."""
    images = [{"names": [f"{FILLED[:400]}{n}"], "sizeBytes": 1} for n in range(2_000)]
    resources = {f"rdma/{FILLED[:40]}{n}": "1" for n in range(2_000)}
    info = dict.fromkeys(NODE_INFO, ESCAPES)
    status = {"images": images, "capacity": resources, "allocatable": resources, "nodeInfo": info}
    meta = {"name": f"hostile-{number}"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


def large_node(number):
    """A node as large whose resources are nobody's that kube-rdma knows."""
    text = json.dumps(hostile_node(number)).replace("rdma/", "a.io/")
    return json.loads(text)


def hostile_report(number):
    """The report of a node that is not there."""
    return {"apiVersion": OWN, "kind": "NodeReport", "metadata": {"name": f"hostile-{number}"}}


def told_by_its_node(lab, number):
    """The status that a node's own token writes: as many cards and reasons as have room."""
    text = (ESCAPES + FILLED)[:512]
    device = {"device": text[:200], "number": 1, "state": text[:200], "linkLayer": text[:200]}
    cards = [
        {"id": f"{n}", "name": text[:200], "reasons": [text] * 8, "ports": [device] * 4}
        for n in range(110)
    ]
    whole = {
        **hostile_report(number),
        "status": {
            "agentVersion": text[:200],
            "cards": cards,
            "pools": [
                {"resource": f"$(touch PWNED){n}", "mode": text[:200], **COUNTS} for n in range(64)
            ],
            "summary": {"cards": 1, "healthy": 1, "problems": text[:200]},
        },
    }
    words = ("apply", "--server-side", "--subresource=status", "--field-manager=node", "-f", "-")
    cluster.kubectl(lab, *words, stdin=json.dumps(whole))


class Hostile:
    """A kind of hostile object: its path at the API server, and what makes one of a number."""

    def __init__(self, path, make, users=None, most_cpu=MOST_CPU):
        self.path, self.make, self.users, self.most_cpu = path, make, users, most_cpu


CLAIMED = f"/apis/{CLAIMS}/namespaces/{HOSTILE}"
PODS = f"/api/v1/namespaces/{HOSTILE}/pods"
CASES = {
    # The node's pods are the agent's to read, and each change of one of these is a megabyte: some
    # thousand of them, most for the kubelet's new tries.
    "pod": Hostile(PODS, hostile_pod, most_cpu=5.0),
    "NAD": Hostile(
        f"/apis/k8s.cni.cncf.io/v1/namespaces/{HOSTILE}/network-attachment-definitions",
        hostile_network,
        user_of_network,
    ),
    "IPPool": Hostile(f"/apis/{OWN}/ippools", hostile_pool),
    "claim": Hostile(f"{CLAIMED}/resourceclaims", hostile_claim, user_of_claim),
    "template": Hostile(f"{CLAIMED}/resourceclaimtemplates", hostile_template, user_of_template),
    "BandwidthCheck": Hostile(f"/apis/{OWN}/namespaces/{HOSTILE}/bandwidthchecks", hostile_check),
    "DaemonSet": Hostile(f"/apis/apps/v1/namespaces/{HOSTILE}/daemonsets", hostile_daemon_set),
    "Node": Hostile("/api/v1/nodes", hostile_node),
    "NodeReport": Hostile(f"/apis/{OWN}/nodereports", hostile_report),
}

# A node that starts a hundred pods is slow whatever they say, so the control has as many.
CONTROLS = {"pod": Hostile(PODS, refused_pod), "Node": Hostile("/api/v1/nodes", large_node)}


@pytest.fixture(scope="module")
def lab(ethernet):
    """The agents and controllers with all that reads these kinds, and a namespace."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOSTILE}}
    cluster.apply(ethernet, space)
    with agents(ethernet) as installed:
        words = ("-n", NAMESPACE, "deployment/kube-rdma-controller", "--for=condition=Available")
        cluster.wait(installed, *words)
        yield installed
    cluster.kubectl(ethernet, "delete", "namespace", HOSTILE)


@pytest.fixture(scope="module")
def client(lab):
    return ApiClient(lab.home / "pki", lab.api)


def own_pods(lab):
    return cluster.get(lab, "-n", NAMESPACE, "pods")["items"]


def restarts(lab):
    """The containers of kube-rdma that started again, by pod."""
    return {
        (pod["metadata"]["name"], one["name"]): one["restartCount"]
        for pod in own_pods(lab)
        for one in pod["status"].get("containerStatuses", ())
    }


class Process:
    """The process of a pod's container; a native node's are processes of this machine."""

    def __init__(self, pod):
        group = re.compile(f"pod{pod['metadata']['uid'].replace('-', '[-_]')}".encode())
        mine = [one for one in Path("/proc").glob("[0-9]*") if group.search(read(one / "cgroup"))]
        self._home = max(mine, key=lambda one: amount(one, "VmRSS"))
        self.pid = int(self._home.name)

    def cpu(self):
        """Seconds of a processor since it started."""
        fields = read(self._home / "stat").rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self):
        """The most memory since `forget`, bytes."""
        return amount(self._home, "VmHWM")

    def forget(self):
        """Begin the peak again at the present memory (proc(5), clear_refs)."""
        (self._home / "clear_refs").write_text("5")

    def listening(self):
        """The ports, with whether only their own node reaches them, and the unix sockets."""
        mine = {str(one.readlink()) for one in (self._home / "fd").iterdir()}
        ports, paths = set(), set()
        for name in ("tcp", "tcp6"):
            for row in read(self._home / "net" / name).decode().splitlines()[1:]:
                _, local, _, state, *_ = fields = row.split()
                if state == "0A" and f"socket:[{fields[9]}]" in mine:
                    address, _, port = local.rpartition(":")
                    ports.add((int(port, 16), address in LOOPBACK))
        for row in read(self._home / "net/unix").decode().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "00010000" and f"socket:[{fields[6]}]" in mine and len(fields) > 7:
                # A socket is bound under another name and renamed when it is ready.
                path = fields[7].replace("/.", "/").removesuffix(".new")
                paths.add(f"{self._home}/root{path}")
        return ports, paths


def read(path):
    """A file of /proc; empty where the process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def amount(home, name):
    """An amount of memory of a process, bytes."""
    found = re.search(rb"%s:\s+(\d+) kB" % name.encode(), read(home / "status"))
    return int(found[1]) * KIB if found else 0


def agent_of(lab):
    """The agent of the node."""
    (pod,) = (
        one
        for one in own_pods(lab)
        if one["spec"].get("nodeName") == NODE
        and one["metadata"]["labels"]["name"] == "kube-rdma-agent"
    )
    return pod


def start_of_a_pod(lab, number):
    """Seconds until an honest pod with a card, a network and an address is Ready."""
    name = f"honest-{number}"
    begun = time.monotonic()
    with applied(lab, *of_template(name, {"network": NETWORK})):
        cluster.ready(lab, name)
        return time.monotonic() - begun


def starts(lab):
    return statistics.median(start_of_a_pod(lab, number) for number in range(3))


@contextmanager
def stored(lab, client, case):
    """The hostile objects of a case, while they are there."""
    try:
        for number in range(COUNT):
            assert client.create(case.path, case.make(number))
            if case.make is hostile_report:
                told_by_its_node(lab, number)
        for number in range(0, 20 if case.users else 0, 2):
            assert client.create(PODS, case.users(number))
        yield
    finally:
        cluster.kubectl(
            lab, "delete", "-n", HOSTILE, "pods", "--all", "--force", "--grace-period=0"
        )
        kind = case.path.rpartition("/")[2]
        names = [f"hostile-{number}" for number in range(COUNT)]
        cluster.kubectl(lab, "delete", kind, "-n", HOSTILE, "--ignore-not-found", *names)


@pytest.mark.parametrize("kind", CASES)
def test_a_hundred_hostile_objects_harm_nobody(lab, client, kind, record_property):
    agent = Process(agent_of(lab))
    before = restarts(lab)
    agent.forget()
    memory, cpu = agent.peak(), agent.cpu()
    with stored(lab, client, CONTROLS[kind]) if kind in CONTROLS else nullcontext():
        control = starts(lab)
    at_rest, peak_at_rest = agent.cpu() - cpu, agent.peak()
    agent.forget()
    cpu = agent.cpu()
    with stored(lab, client, CASES[kind]):
        beside = starts(lab)
        spent, more = agent.cpu() - cpu - at_rest, agent.peak() - max(memory, peak_at_rest)
    figures = (
        f"{kind}: start {control:.2f} s, beside {beside:.2f} s, "
        f"{spent:.2f} s CPU, {more / MIB:.1f} MiB"
    )
    record_property("figures", figures)
    print(figures)
    assert restarts(lab) == before
    assert more <= MOST_MEMORY, figures
    assert spent <= CASES[kind].most_cpu * max(1.0, lab.state.pace), figures
    assert beside <= MOST_RATIO * control, figures


HEALTH = 9880  # serves /livez and /readyz
LOOPBACK = ("0100007F", "0" * 24 + "01000000")  # in /proc/net/tcp and tcp6

# Opens connections that say nothing, to a port or a unix socket, and keeps them until its input
# ends. A connection that is refused or cut off is opened no more.
SILENT = """
import resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
host, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
family, place = (socket.AF_INET, (host, int(port))) if port else (socket.AF_UNIX, host)
held = []
for _ in range(count):
    opened = socket.socket(family)
    opened.settimeout(1 if port else 0)
    try:
        opened.connect(place)
    except OSError:
        continue
    held.append(opened)
print(len(held), flush=True)
sys.stdin.read()
"""


@contextmanager
def silent(pid, host, port=""):
    """2,000 connections from one address of a process's network, while they are held."""
    enter = ("nsenter", f"--target={pid}", "--net", "--")
    argv = [*enter, sys.executable, "-c", SILENT, host, str(port), str(CONNECTIONS)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, **pipes) as process:
        assert int(process.stdout.readline()), f"{host}: no connection was taken"
        yield
        process.stdin.close()


def answer(lab, node, address, port, path):
    """What a client on a node gets of an HTTP server."""
    request = rf"GET {path} HTTP/1.0\r\n\r\n"
    script = f"exec 3<>/dev/tcp/{address}/{port}; printf '{request}' >&3; cat <&3"
    return cluster.shell(lab, node, "bash", "-c", script)


def test_silent_connections_keep_nobody_out(lab):
    """On every socket that an agent or a controller listens on."""
    before = restarts(lab)
    pods = [
        agent_of(lab),
        *(one for one in own_pods(lab) if "controller" in one["metadata"]["name"]),
    ]
    sockets = 0
    for one in pods:
        process = Process(one)
        ports, paths = process.listening()
        own = one["spec"]["nodeName"]
        other = next(node for node in ("node-1", "node-2") if node != own)
        served = [
            (("127.0.0.1", port), process.pid, own)
            if is_local
            else ((one["status"]["podIP"], port), lab.state.pid, other)
            for port, is_local in ports
        ]
        for place, pid, node in [*served, *(((path,), process.pid, "") for path in paths)]:
            sockets += 1
            process.forget()
            memory = process.peak()
            with silent(pid, *place):
                start_of_a_pod(lab, sockets)
                if node:
                    path = "/livez" if place[1] == HEALTH else "/metrics"
                    assert "HTTP/1.1 200" in answer(lab, node, *place, path)
            more = process.peak() - memory
            print(f"{one['metadata']['name']} {place}: {more / MIB:.1f} MiB")
            assert more <= MOST_OF_CONNECTIONS, place
    assert sockets >= 3
    assert restarts(lab) == before
