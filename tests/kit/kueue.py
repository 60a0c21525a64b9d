"""The real Kueue: its Go module (tests/lab/native/kueue) with the definitions of that module.

It runs beside the API server with an administrator's rights, without webhooks: jobs are made
suspended as its webhook would make them, and definitions convert nothing, for one version of each
is used. Its other webhooks only check, or are of other kinds than Jobs.
"""

import json
import socket
import subprocess
from contextlib import contextmanager

import yaml

from kube_rdma_lab import cluster
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.pki import Authority
from tests.kit.helm import MODULES

MODULE = "sigs.k8s.io/kueue"
DEFINITIONS = "config/components/crd/bases"
API = "kueue.x-k8s.io/v1beta2"
LABEL = "kueue.x-k8s.io/queue-name"
RESERVED = "QuotaReserved"  # a condition of a workload; without it there is no pod


def configuration(folder, port, gates, more):
    """What Kueue reads: it works for Jobs, with these feature gates besides its own."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder / "certs")},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"VisibilityOnDemand": False, **gates},
        **more,
    }


def free_port():
    """A port of this machine that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def write_certificates(folder):
    """A server's certificate where the configuration names it and where Kueue's metrics look."""
    pair = Authority("kueue").issue("kueue", hosts=("127.0.0.1",))
    for place in (folder / "certs", folder / "etc/kueue/metrics/certs"):
        place.mkdir(parents=True)
        (place / "tls.crt").write_bytes(pair.certificate)
        (place / "tls.key").write_bytes(pair.key)


@contextmanager
def controller(lab, folder, gates, more):
    """The controller for a while; in its view of the files /etc has nothing but certificates."""
    write_certificates(folder)
    config = folder / "config.yaml"
    config.write_text(json.dumps(configuration(folder, free_port(), gates, more)))
    with open_store() as store:
        program = go.build_module(store, "kueue", MODULES) / "kueue"
        inside = f'mount --bind {folder}/etc /etc && exec "$@"'
        words = ("unshare", "--map-root-user", "--mount", "sh", "-c", inside, "kueue")
        argv = (*words, program, f"--config={config}", f"--kubeconfig={lab.kubeconfig}")
        log = folder / "log"
        with log.open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=out) as running:
            try:
                yield
            finally:
                running.terminate()
                print(log.read_text())


def definitions():
    """Kueue's own kinds, without the conversion that its webhook does."""
    folder = go.module_files("kueue", MODULE, MODULES) / DEFINITIONS
    for path in sorted(folder.glob("*.yaml")):
        yield yaml.safe_load(path.read_text())


@contextmanager
def kueue(lab, folder, gates=None, **more):
    """Kueue and its kinds for a while, with feature gates and more of its configuration."""
    kinds = list(definitions())
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": kinds})
    cluster.kubectl(lab, "apply", "--server-side", "-f", "-", stdin=text)
    names = [f"crd/{one['metadata']['name']}" for one in kinds]
    cluster.wait(lab, *names, "--for=condition=Established")
    try:
        with controller(lab, folder, gates or {}, more):
            yield
    finally:
        cluster.kubectl(lab, "delete", *names, "--ignore-not-found")


def workload(lab, name):
    """What Kueue says of a job."""
    listed = cluster.get(lab, "workloads.kueue.x-k8s.io")["items"]
    owned = (one for one in listed if one["metadata"]["ownerReferences"][0]["name"] == name)
    return next(owned, {}).get("status", {})


def conditions(lab, name):
    """The conditions of a job's workload, by type: status and message."""
    said = workload(lab, name).get("conditions", ())
    return {one["type"]: (one["status"], one["message"]) for one in said}


def admitted(lab, name):
    """What an admitted job was given."""
    (given,) = workload(lab, name)["admission"]["podSetAssignments"]
    return given


def pods_of(lab, name):
    """The pods of a job."""
    return cluster.get(lab, "pods", "-l", f"batch.kubernetes.io/job-name={name}")["items"]


def names_of(lab, name):
    """The names of a job's pods."""
    return [one["metadata"]["name"] for one in pods_of(lab, name)]
