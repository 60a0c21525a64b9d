"""Where pods stand in the objects of many projects."""

import pytest

from kube_base.errors import Refused
from kube_rdma.admission.documents.manifests import manifests, pods
from kube_rdma.lib.text.reader import read_all

POD = "{spec: {containers: [{name: a}]}}"
PLACES = {
    "v1 Pod": "spec: {containers: [{name: a}]}",
    "v1 PodTemplate": f"template: {POD}",
    "v1 ReplicationController": f"spec: {{template: {POD}}}",
    "apps/v1 Deployment": f"spec: {{template: {POD}}}",
    "apps/v1 StatefulSet": f"spec: {{template: {POD}}}",
    "apps/v1 DaemonSet": f"spec: {{template: {POD}}}",
    "batch/v1 Job": f"spec: {{template: {POD}}}",
    "batch/v1 CronJob": f"spec: {{jobTemplate: {{spec: {{template: {POD}}}}}}}",
    "kubeflow.org/v2beta1 MPIJob": (
        f"spec: {{mpiReplicaSpecs: {{Launcher: {{template: {POD}}}, Worker: {{template: {POD}}}}}}}"
    ),
    "kubeflow.org/v1 PyTorchJob": (
        f"spec: {{pytorchReplicaSpecs: {{Master: {{template: {POD}}}, "
        f"Worker: {{template: {POD}}}}}}}"
    ),
    "batch.volcano.sh/v1alpha1 Job": f"spec: {{tasks: [{{template: {POD}}}, {{template: {POD}}}]}}",
    "jobset.x-k8s.io/v1alpha2 JobSet": (
        f"spec: {{replicatedJobs: [{{template: {{spec: {{template: {POD}}}}}}}]}}"
    ),
    "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": (
        f"spec: {{leaderWorkerTemplate: {{workerTemplate: {POD}}}}}"
    ),
}
TWO = ("MPIJob", "PyTorchJob", "batch.volcano.sh/v1alpha1 Job")


def objects(text):
    return [one for document in read_all(text.encode(), "a") for one in manifests(document)]


@pytest.mark.parametrize("kind", PLACES)
def test_the_pods_of_a_kind_are_where_it_has_them(kind):
    version, name = kind.split()
    text = f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: n, namespace: s}}\n"
    (manifest,) = objects(text + PLACES[kind])
    assert (manifest.kind, manifest.namespace, manifest.name, manifest.document.place(()).line) == (
        name,
        "s",
        "n",
        1,
    )
    inside = list(pods(manifest))
    assert len(inside) == (2 if kind.endswith(TWO) else 1)
    for part in inside:
        assert part.value["spec"] == {"containers": [{"name": "a"}]}
        assert part.where(("spec", "containers", 0)).startswith("a:4:")


def test_another_group_s_kind_of_the_same_name_is_another():
    (manifest,) = objects("apiVersion: example.com/v1\nkind: Job\nspec: {template: 1}\n")
    assert list(pods(manifest)) == []


def test_a_list_is_its_items():
    text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- {kind: x}\n- 7\n"
    (manifest,) = objects(text)
    assert (manifest.kind, manifest.name, manifest.document.place(()).line) == ("Pod", "", 4)


def test_a_template_that_is_missing_is_refused():
    (manifest,) = objects("apiVersion: batch/v1\nkind: Job\nspec: {parallelism: 1}\n")
    with pytest.raises(Refused) as caught:
        list(pods(manifest))
    assert caught.value.where == "a:3:7: spec.template"


@pytest.mark.parametrize("text", ["7", "a: 1", "kind: Pod", "kind: [a]\napiVersion: v1", "- a"])
def test_what_is_no_object_is_none(text):
    assert objects(text) == []
