"""The real JobSet and LeaderWorkerSet: controllers, definitions and webhooks of their Go modules.

One module of the lab (tests/lab/native/gangs) builds both. They run with an administrator's rights
in the network of the API server, which calls their webhooks at 127.0.0.1. Without webhooks a leader
would have no label with the index of its group.
"""

import base64
import json
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import yaml

from kube_base.errors import Unavailable
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.pki import Authority
from tests.kit.helm import MODULES

LOCAL = "127.0.0.1"
# A fifth of a RoCE card's packets, as words of iptables behind a chain.
LOSS = "-p udp --dport 4791 -m statistic --mode random --probability 0.2 -j DROP"


@dataclass(frozen=True)
class Maker:
    """A controller that makes gangs of pods: its module, its program, and what it watches."""

    module: str
    program: str
    config: str  # the group of its configuration
    files: str  # the folder of the module with definitions and webhooks
    port: int  # of its webhooks
    kinds: str


JOB_SET = Maker(
    "sigs.k8s.io/jobset",
    "jobset",
    "config.jobset.x-k8s.io",
    "config/components",
    9443,
    "jobsets.jobset.x-k8s.io",
)
LEADER_WORKER_SET = Maker(
    "sigs.k8s.io/lws",
    "cmd",  # Go names a program after its folder
    "config.lws.x-k8s.io",
    "config",
    9444,
    "leaderworkersets.leaderworkerset.x-k8s.io",
)
BOTH = (JOB_SET, LEADER_WORKER_SET)


def build(store):
    """The folder with the programs of both."""
    return go.build_module(store, "gangs", MODULES)


def configuration(maker, certificates):
    """What a controller reads: its webhooks are where they are, with these certificates."""
    return {
        "apiVersion": f"{maker.config}/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOCAL, "port": maker.port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def webhooks(maker, folder, authority):
    """Its webhooks as its module patches them, at an address in place of a Service."""
    (patches,) = {path.parent for path in folder.rglob("mutating-patch.yaml")}
    for one in yaml.safe_load_all((folder / "webhook/manifests.yaml").read_text()):
        word = one["kind"].removesuffix("WebhookConfiguration").lower()
        for patch in yaml.safe_load((patches / f"{word}-patch.yaml").read_text()):
            assert (patch["op"], patch["path"]) == ("replace", "/webhooks/1")
            one["webhooks"][1] = patch["value"]
        one["metadata"]["name"] = f"{maker.kinds}-{word}"
        for each in one["webhooks"]:
            path = each["clientConfig"]["service"]["path"]
            each["clientConfig"] = {
                "url": f"https://{LOCAL}:{maker.port}{path}",
                "caBundle": base64.b64encode(authority.certificate).decode(),
            }
        yield one


@contextmanager
def running(lab, maker, programs, folder):
    """A controller with its definitions and webhooks, until the scope closes."""
    authority = Authority(maker.program)
    pair, certificates = authority.issue(maker.program, hosts=(LOCAL,)), folder / maker.program
    certificates.mkdir()
    (certificates / "tls.crt").write_bytes(pair.certificate)
    (certificates / "tls.key").write_bytes(pair.key)
    config = folder / f"{maker.program}.yaml"
    config.write_text(json.dumps(configuration(maker, certificates)))
    files = go.module_files("gangs", maker.module, MODULES) / maker.files
    kinds = [yaml.safe_load(path.read_text()) for path in sorted(files.glob("crd/bases/*.yaml"))]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": kinds})
    cluster.kubectl(lab, "apply", "--server-side", "-f", "-", stdin=text)
    cluster.wait(lab, f"crd/{maker.kinds}", "--for=condition=Established")
    hooks = [*webhooks(maker, files, authority)]
    words = (f"--config={config}", f"--kubeconfig={lab.home}/pki/admin.kubeconfig")
    mortal = ("setpriv", "--pdeathsig", "KILL", "--")  # it ends with nsenter
    argv, log = (*lab.enter(), *mortal, programs / maker.program, *words), folder / "log"
    with log.open("ab") as out, subprocess.Popen(argv, stdout=out, stderr=out) as process:
        try:
            cluster.apply(lab, *hooks)
            waiting.until(lab, f"the webhooks of {maker.kinds}", lambda: answers(lab, kinds[0]))
            yield
        finally:
            for one in hooks:
                cluster.kubectl(lab, "delete", one["kind"], one["metadata"]["name"])
            cluster.delete_definition(lab, maker.kinds)
            process.kill()
            print(log.read_text())


def answers(lab, definition):
    """Whether the webhooks of a kind judge an object: they refuse one that asks for nothing."""
    version = definition["spec"]["versions"][0]["name"]
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    made = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "trial"}}
    words = ("create", "--dry-run=server", "--validate=false", "-f", "-")
    try:
        cluster.kubectl(lab, *words, stdin=json.dumps({**made, "spec": {}}))
    except Unavailable as error:
        return "failed calling webhook" not in str(error)
    return True


@contextmanager
def makers(lab, folder, *chosen):
    """These controllers for a while."""
    with open_store() as store, ExitStack() as stack:
        programs = build(store)
        for maker in chosen:
            stack.enter_context(running(lab, maker, programs, folder))
        yield


def result(lab):
    """The status of the BandwidthCheck of the one gang that has measured; None before."""
    checks = cluster.get(lab, "bandwidthchecks")["items"]
    return next((one["status"] for one in checks if one.get("status")), None)
