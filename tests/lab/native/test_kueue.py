"""The real Kueue: a queue counts cards by claims, admits a job and lets the next one wait.

Kueue is its Go module (tests/lab/native/kueue), and its definitions are those of that module. It
runs beside the API server with an administrator's rights, without webhooks: jobs are made suspended
as its webhook would make them, and definitions convert nothing, for one version of each is used.
"""

import json
import socket
import subprocess
from contextlib import contextmanager

import pytest
import yaml

from kube_rdma.model.claims.devices import DRIVER
from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.pki import Authority
from tests.kit import manifests
from tests.kit.claiming import CLAIMS, agents, device_nodes, pod
from tests.kit.helm import MODULES

# Slow: to build it takes many minutes.
pytestmark = pytest.mark.slow

MODULE = "sigs.k8s.io/kueue"
DEFINITIONS = "config/components/crd/bases"
API = "kueue.x-k8s.io/v1beta2"
QUEUE, COUNTED, CLASS, QUOTA = "cards", "rdma-shares", "rdma-shared", 2
LABEL = "kueue.x-k8s.io/queue-name"


@pytest.fixture(scope="module")
def lab(ethernet):
    """The agents, which offer shares of cards to claims."""
    with agents(ethernet) as installed:
        yield installed


def configuration(folder, port):
    """What Kueue is told: the class of claims that counts as a resource of its own."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder / "certs")},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"DynamicResourceAllocation": True, "VisibilityOnDemand": False},
        "resources": {"deviceClassMappings": [{"name": COUNTED, "deviceClassNames": [CLASS]}]},
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
def kueue(lab, folder):
    """The controller for a while; in its view of the files /etc has nothing but certificates."""
    write_certificates(folder)
    config = folder / "config.yaml"
    config.write_text(json.dumps(configuration(folder, free_port())))
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


def made(kind, name, **spec):
    """An object of Kueue."""
    metadata = {"name": name, **({"namespace": "default"} if kind == "LocalQueue" else {})}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def queues():
    """One queue that has so many shares of cards to give, and its local queue in a namespace."""
    resource = {"name": COUNTED, "nominalQuota": str(QUOTA)}
    flavors = [{"name": QUEUE, "resources": [resource]}]
    groups = [{"coveredResources": [COUNTED], "flavors": flavors}]
    return (
        made("ResourceFlavor", QUEUE),
        made("ClusterQueue", QUEUE, namespaceSelector={}, resourceGroups=groups),
        made("LocalQueue", QUEUE, clusterQueue=QUEUE),
    )


def template(name="share", **devices):
    """One share of a card, and what else is said of devices."""
    exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
    return manifests.manifest(
        CLAIMS,
        "ResourceClaimTemplate",
        {"name": name, "namespace": "default"},
        {"spec": {"devices": {"requests": [{"name": "nic", "exactly": exactly}], **devices}}},
    )


def job(name, pods, share="share"):
    """A job whose pods have a claim each of a template, suspended until Kueue admits it."""
    body = pod(name, resourceClaimTemplateName=share)["spec"] | {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {LABEL: QUEUE}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": body},
        },
    }


@pytest.fixture(scope="module")
def queued(lab, tmp_path_factory):
    """Kueue, a queue and a template."""
    kinds = list(definitions())
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": kinds})
    cluster.kubectl(lab, "apply", "--server-side", "-f", "-", stdin=text)
    names = [f"crd/{one['metadata']['name']}" for one in kinds]
    cluster.wait(lab, *names, "--for=condition=Established")
    try:
        with kueue(lab, tmp_path_factory.mktemp("kueue")):
            cluster.apply(lab, *queues(), template())
            cluster.wait(lab, f"clusterqueue/{QUEUE}", "--for=condition=Active")
            yield lab
            gone = ("--ignore-not-found", "--wait")
            cluster.kubectl(lab, "delete", "job", "first", "second", "third", *gone)
            cluster.kubectl(lab, "delete", f"localqueue/{QUEUE}", f"clusterqueue/{QUEUE}", *gone)
            cluster.kubectl(lab, "delete", "resourceclaimtemplate", "share", "told", *gone)
            cluster.kubectl(lab, "delete", f"resourceflavor/{QUEUE}", *gone)
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


def pods_of(lab, name):
    """The names of a job's pods."""
    listed = cluster.get(lab, "pods", "-l", f"batch.kubernetes.io/job-name={name}")["items"]
    return [one["metadata"]["name"] for one in listed]


def test_a_job_within_the_quota_of_cards_runs_and_the_next_waits_until_it_has_gone(queued):
    """Each pod of the first opens its card; of the second there is no pod before."""
    cluster.apply(queued, job("first", QUOTA))
    waiting.until(queued, "the pods of the job", lambda: len(pods_of(queued, "first")) == QUOTA)
    names = pods_of(queued, "first")
    cluster.ready(queued, *names)
    assert all(device_nodes(queued, name) for name in names)
    (assigned,) = workload(queued, "first")["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"] == {COUNTED: str(QUOTA)}
    cluster.apply(queued, job("second", 1))
    reserved = "QuotaReserved"
    waiting.until(queued, "Kueue's word", lambda: reserved in conditions(queued, "second"))
    status, message = conditions(queued, "second")[reserved]
    assert status == "False"
    assert f"insufficient unused quota for {COUNTED} in flavor {QUEUE}" in message
    assert not pods_of(queued, "second")
    cluster.kubectl(queued, "delete", "job", "first", "--wait")
    waiting.until(queued, "the pod of the other job", lambda: pods_of(queued, "second"))
    cluster.ready(queued, *pods_of(queued, "second"))


def test_a_template_with_parameters_is_refused_by_kueue_itself(queued):
    """So they have to stand in a DeviceClass, of which Kueue reads the name alone."""
    parameters = {"apiVersion": "kube-rdma.io/v1alpha1", "kind": "ClaimParameters", "mtu": 1400}
    config = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    cluster.apply(queued, template("told", config=config), job("third", 1, "told"))
    said = waiting.until(queued, "Kueue's word", lambda: conditions(queued, "third"))
    assert any("device config is not supported" in message for _, message in said.values())
    assert not pods_of(queued, "third")
