"""What a lab costs in another checkout, and in this one: CPU at rest, seconds until pods run.

KUBE_RDMA_BESIDE names the other checkout (another commit in a clone, with a .venv of its own). Each
boots its lab by its own command, installs seed S3 from its own examples and is measured; then the
next. This asks nothing of the other's Python: a lab of any version has a state.json, a kubectl and
an admin's kubeconfig inside its namespaces.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from bench import lab_rest
from bench.checkout import VARIABLE, Checkout, turns
from bench.context import Context
from bench.figures import Absent, Figure, Row, attempt
from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, pace, state

IN_TURNS = True
NAME = "beside"
NO_OTHER = Absent("beside", f"{VARIABLE} names no other checkout", failed=False)
NODES = ("node-1", "node-2")  # of the topology two-nodes
RESOURCE = "rdma/hca_shared_devices_a"
FOLDER = f"examples/{lab_rest.NETWORK}"
POD = f"{FOLDER}/rdma-test-pod*1.y*ml"  # its name changed between versions
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CheckoutLab:
    """A lab of a checkout, as far as all versions are alike."""

    checkout: Checkout

    @property
    def state(self) -> Mapping[str, Any]:
        """What the lab says of itself."""
        fields = json.loads((state.home(NAME) / "state.json").read_text())
        return {"pid": int(fields["pid"]), "binaries": str(fields["binaries"])}

    def command(self, *words: str) -> None:
        """Run `kube-rdma lab` of the checkout, its progress for people to see."""
        argv = (self.checkout.program, "lab", *words, "--name", NAME)
        done = subprocess.run(
            argv,
            cwd=self.checkout.folder,
            env=self.checkout.environment(),
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"`{' '.join(argv)}` failed")

    def kubectl(self, *words: str, documents: Sequence[Document] = ()) -> str:
        """Run kubectl inside the lab, where its API server has the same address in each version."""
        inside = ("nsenter", f"--target={self.state['pid']}", "--net", "--mount", "--pid", "--")
        admin = f"--kubeconfig={state.home(NAME)}/pki/admin.kubeconfig"
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        done = subprocess.run(
            (*inside, f"{self.state['binaries']}/kubectl", admin, *words),
            input=items,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(
                f"`kubectl {' '.join(words)}` failed in {self.checkout.folder}: {done.stderr}"
            )
        return done.stdout

    def wait(self, *words: str) -> None:
        """Wait as `kubectl wait` does, however slow the machine is."""
        self.kubectl("wait", *words, cluster.ENDLESS)

    def documents(self, *patterns: str) -> list[Document]:
        """Return what the files of the checkout say that patterns match, in their order."""
        paths = [
            path for pattern in patterns for path in sorted(self.checkout.folder.glob(pattern))
        ]
        return [each for path in paths for each in yaml.safe_load_all(path.read_text()) if each]


@contextmanager
def booted(checkout: Checkout) -> Iterator[CheckoutLab]:
    """Have a checkout's lab up for a while; another's of the same name would have its disks."""
    lab = CheckoutLab(checkout)
    lab.command("down")
    try:
        lab.command("up")
        yield lab
    finally:
        lab.command("down")


def install(lab: CheckoutLab) -> None:
    """Install seed S3 of the checkout: agent, controller, network."""
    apply = ("apply", "-f", "-")
    lab.kubectl(*apply, documents=lab.documents("config/crds/*.yaml", "config/foreign/*.yaml"))
    lab.wait("crd", "--all", "--for=condition=Established")
    lab.kubectl("label", "node", "--all", "--overwrite", f"{cluster.CARDS_LABEL}=true")
    agent = lab.documents(f"{FOLDER}/agent.yaml")
    lab.kubectl(*apply, documents=[*agent, *lab.documents(f"{FOLDER}/controller.yaml")])
    (place,) = (each["metadata"] for each in agent if each["kind"] == "DaemonSet")
    target = (f"daemonset/{place['name']}", "-n", place["namespace"])
    lab.kubectl("rollout", "status", *target, "--timeout=0")
    path = RESOURCE.replace("/", "\\/")
    lab.wait("node", "--all", f"--for=jsonpath={{.status.allocatable.{path}}}=1k")
    lab.kubectl(*apply, documents=lab.documents(f"{FOLDER}/rdma-net-ipam.yaml"))


def pod_seconds(lab: CheckoutLab, pod: Document, times: int) -> list[float]:
    """Start a pod several times; return what each took until it was Ready."""
    name = f"pod/{pod['metadata']['name']}"
    seconds = []
    for _ in range(times):
        begin = time.monotonic()
        lab.kubectl("apply", "-f", "-", documents=[pod])
        lab.wait(name, "--for=condition=Ready")
        seconds.append(time.monotonic() - begin)
        lab.kubectl("delete", name, "--grace-period=1")
    return seconds


def life(checkout: Checkout, context: Context) -> Iterator[Figure]:
    """Boot a checkout's lab, install the seed, let it rest, start pods; nothing of it stays."""
    yield Figure("machine_pace", pace.measure(), "×", note="1 is the reference; see pace.py")
    begin = time.monotonic()
    with booted(checkout) as lab:
        yield Figure("up_seconds", time.monotonic() - begin, "s")
        install(lab)
        pids = {name: lab_rest.machine_pid(lab.state["pid"], name) for name in NODES}
        yield from lab_rest.at_rest(pids, "s3", context)
        (networked, *_) = lab.documents(POD)
        pods = {"pod": lab_rest.PLAIN_POD, "network_pod": networked}
        for key, pod in pods.items():
            seconds = pod_seconds(lab, pod, context.times(lab_rest.PODS, 1))
            median = statistics.median(seconds)
            yield Figure(f"{key}_seconds", median, "s", note=lab_rest.spread(seconds))


def measure(context: Context) -> Iterator[Row]:
    """Measure both, one after the other; nothing where no other is named."""
    both = tuple(turns(1))
    if len(both) == 1:
        yield NO_OTHER
        return
    for checkout in both:
        measured = partial(map, checkout.named, life(checkout, context))
        yield from attempt(f"{checkout.prefix}life", measured)
