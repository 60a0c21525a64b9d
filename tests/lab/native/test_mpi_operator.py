"""The real mpi-operator of Kubeflow: the pods of its MPIJob ask for shares, and get cards.

Operator and definition are those of its Go module (tests/lab/native/mpi-operator). It runs beside
the API server with an administrator's rights. The job's launcher asks for nothing, as in most jobs:
it finds its workers by the hostfile and by name. What MPI itself does over cards is test_mpi.py's.
"""

import subprocess
from contextlib import contextmanager

import pytest

from kube_rdma_lab import cluster
from kube_rdma_lab.build import go
from kube_rdma_lab.build.parts import open_store
from kube_rdma_lab.demo import scc
from tests.kit import manifests, shared_plugin
from tests.kit.helm import MODULES
from tests.kit.pods import IMAGE, UNTIL_ASKED

# Slow: to build it takes longer than three minutes.
pytestmark = pytest.mark.slow

MODULE = "github.com/kubeflow/mpi-operator"
DEFINITION = "manifests/base/kubeflow.org_mpijobs.yaml"
LOCK, JOB, WORKERS = "mpi-operator", "allreduce", 2
# The launcher's pod of Open MPI: names in the first column.
LOOK_UP = "cut -d' ' -f1 /etc/mpi/hostfile | xargs -n 1 getent hosts"


def template(command, limits=None, **spec):
    """The template of a pod with one container."""
    container = {"name": "main", "image": IMAGE, "command": list(command)}
    container["resources"] = {"limits": limits or {}}
    return {"spec": {"containers": [container], **spec}}


def job():
    """An MPIJob with a worker on each node."""
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/job-role": "worker"}},
    }
    worker = template(UNTIL_ASKED, {scc.RESOURCE: "2"}, topologySpreadConstraints=[apart])
    spec = {
        "slotsPerWorker": 1,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "None"},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": template(("sh", "-c", LOOK_UP))},
            "Worker": {"replicas": WORKERS, "template": worker},
        },
    }
    return manifests.manifest(
        "kubeflow.org/v2beta1", "MPIJob", {"name": JOB, "namespace": "default"}, spec
    )


@contextmanager
def operator(lab, log):
    """The operator, until the scope closes."""
    with open_store() as store:
        program = go.build_module(store, "mpi-operator", MODULES) / "mpi-operator"
        words = (program, f"-kubeConfig={lab.kubeconfig}", f"-lock-namespace={LOCK}")
        with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as running:
            try:
                yield
            finally:
                running.terminate()
                print(log.read_text())


@pytest.fixture(scope="module")
def lab(recorded, tmp_path_factory):
    """Native nodes with shares, and the operator."""
    definition = go.module_files("mpi-operator", MODULE, MODULES) / DEFINITION
    cluster.kubectl(recorded, "apply", "--server-side", "-f", str(definition))
    cluster.wait(recorded, "crd/mpijobs.kubeflow.org", "--for=condition=Established")
    cluster.kubectl(recorded, "create", "namespace", LOCK)
    with operator(recorded, tmp_path_factory.mktemp("operator") / "log"):
        yield recorded
        cluster.kubectl(recorded, "delete", "mpijob", JOB, "--ignore-not-found", "--wait")
    cluster.kubectl(recorded, "delete", "-f", str(definition))
    cluster.kubectl(recorded, "delete", "namespace", LOCK)


def test_the_workers_of_a_job_have_cards_and_the_launcher_finds_them(lab):
    """The launcher has none and ends; the job has succeeded."""
    cluster.apply(lab, job())
    cluster.wait(lab, f"mpijob/{JOB}", "--for=condition=Succeeded")
    names = [f"{JOB}-worker-{number}" for number in range(WORKERS)]
    workers = [cluster.get(lab, f"pod/{name}") for name in names]
    assert {one["spec"]["nodeName"] for one in workers} == {"node-1", "node-2"}
    for one in workers:
        held = shared_plugin.held(lab, one["spec"]["nodeName"], scc.RESOURCE)
        assert len(held[one["metadata"]["uid"]]) == 2
        shown = cluster.kubectl(lab, "exec", one["metadata"]["name"], "--", "ls", "/dev/infiniband")
        assert "uverbs" in shown
    launcher = cluster.kubectl(lab, "logs", f"job/{JOB}-launcher").splitlines()
    addresses = {line.split()[0] for line in launcher}
    assert addresses == {one["status"]["podIP"] for one in workers}
