"""Objects of a document, and the pods in them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.admission.documents import pod_manifest
from kube_rdma.admission.documents.manifests import annotations_above, manifests, pods
from kube_rdma.admission.manifest_check import check
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS
from kube_rdma.lib.text.document import name
from kube_rdma.lib.text.reader import read_all
from tests.kit.refusals import refusal

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
    assert refusal(list, pods(manifest)).where == "a:3:7: spec.template"


@pytest.mark.parametrize("text", ["7", "a: 1", "kind: Pod", "kind: [a]\napiVersion: v1", "- a"])
def test_what_is_no_object_is_none(text):
    assert objects(text) == []


# Pods are found by their containers, in whatever kind and at whatever depth.

MAKERS = Path(__file__).parents[3] / "data/makers"
PARTS = {  # a part of a pod stands there, which others complete
    *("argo-workflow", "argo-cron-workflow", "inference-service", "llm-inference-service"),
    *("train-job", "training-runtime"),
}
WITHOUT_NETWORK = {"llm-inference-service", "train-job"}  # it is said elsewhere in the object


def loaded(text):
    (manifest,) = objects(text)
    return [(part, pod_manifest.load(part)) for part in pods(manifest)]


@pytest.mark.parametrize("file", sorted(MAKERS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_pods_of_real_kinds_are_found(file):
    """What they ask for is read, with the line where it stands."""
    text = file.read_text()
    asking = [(part, pod) for part, pod in loaded(text) if any(c.asks for c in pod.containers)]
    assert len(asking) == text.count("rdma/ib")
    lines = text.splitlines()
    for part, pod in asking:
        assert part.whole is pod.whole is (file.stem not in PARTS)
        assert len(pod.networks) == (file.stem not in WITHOUT_NETWORK)
        ((ask,),) = [one.asks for one in pod.containers if one.asks]
        assert "rdma/ib: 1" in lines[part.place(ask.path, key=True).line - 1]
        if pod.networks:
            assert ANNOTATION in lines[part.place(("metadata", "annotations")).line - 1]


TEMPLATE = {
    "metadata": {
        "annotations": {
            POD_NETWORKS: '[{"cniConf": {"name": "rdma"}}]',
            "k8s.v1.cni.cncf.io/network": "a",
        }
    },
    "spec": {
        "runtimeClassName": "kata-qemu",
        "hostNetwork": True,
        "containers": [
            {"name": "a", "resources": {"limits": {"vke.volcengine.com/rdma": 3}}},
            {"name": "b", "resources": {"limits": {"vke.volcengine.com/mgpu-core": 1}}},
        ],
    },
}
FIELDS = st.sampled_from(["spec", "template", "groups", "jobTemplate", "workers", "roles", "x"])
STEPS = st.lists(st.one_of(FIELDS, st.integers(0, 2)), min_size=1, max_size=8).filter(
    lambda path: isinstance(path[0], str)
)
KINDS = st.sampled_from(
    ["ray.io/v1 RayCluster", "example.com/v1 Job", "batch.volcano.sh/v1 Job", "a.b/v2 Anything"]
)


def wrapped(template, path):
    """An object in which the template stands at this path."""
    value = template
    for step in reversed(path):
        value = {step: value} if isinstance(step, str) else [{}] * step + [value]
    return value


def said(document):
    """Findings and additions of one object: what is wrong, and the field."""
    checked = check(read_all(json.dumps(document).encode(), "file"))
    found = [(one.severity, one.code, one.problem, one.subject) for one in checked.findings]
    return found, [(one.what, one.where) for one in checked.additions]


@given(KINDS, STEPS)
def test_whatever_wraps_a_template_the_same_is_found_in_it(kind, path):
    """With the path of the object in place of the pod's."""
    pod = {"apiVersion": "v1", "kind": "Pod", **TEMPLATE}
    version, word = kind.split()
    wrapping = {"apiVersion": version, "kind": word, **wrapped(TEMPLATE, path)}
    (alone, added), (inside, added_inside) = said(pod), said(wrapping)
    assert {"mgpu", "card-count", "runtime-class", "networks-on-host", "annotation-name"} <= {
        code for _, code, _, _ in alone
    }
    prefix = name(tuple(path))
    assert [one[:3] for one in alone] == [one[:3] for one in inside]
    assert [one[0] for one in added] == [one[0] for one in added_inside]
    for before, after in zip([*alone, *added], [*inside, *added_inside], strict=True):
        assert after[-1].split(": ", 1)[1] == f"{prefix}.{before[-1].split(': ', 1)[1]}"


@pytest.mark.parametrize(
    "text",
    [
        "spec: {containers: 3}",
        "spec: {containers: [a, b]}",
        "spec: {containers: []}",
        "spec: {containers: [{id: 1}, {id: 2}]}",
        "spec: {validation: {properties: {containers: {type: array, items: {type: object}}}}}",
        "spec: {resources: {limits: {cpu: 1}}, volumeClaimTemplates: [{spec: {resources: {}}}]}",
    ],
)
def test_what_only_looks_like_a_pod_is_none(text):
    (manifest,) = objects(f"apiVersion: example.com/v1\nkind: Fleet\n{text}\n")
    assert list(pods(manifest)) == []


@pytest.mark.parametrize("field", ["podTemplateOverrides", "runtimePatches", "templateDefaults"])
def test_a_change_of_a_template_is_not_the_whole_pod(field):
    """Its counts say nothing: the limits may stand in what it changes."""
    template = json.dumps(TEMPLATE)
    ((_, pod),) = loaded(f"apiVersion: a.b/v1\nkind: Any\nspec: {{{field}: [{template}]}}\n")
    assert not pod.whole
    (manifest,) = objects(f"apiVersion: a.b/v1\nkind: Any\nspec: {{{field}: [{template}]}}\n")
    assert "block-count" not in [one.code for one in check([manifest.document]).findings]


@pytest.mark.parametrize("number", ["'{{inputs.n}}'", "$GPUS", "'${GPUS}'", "GPUS_PER_NODE", "<n>"])
def test_a_placeholder_of_a_number_is_no_fault(number):
    """Many public files have one; rules that count say nothing of such a pod."""
    limits = f"limits: {{rdma/ib: {number}, vke.volcengine.com/rdma: {number}}}"
    spec = f"containers: [{{name: a, resources: {{{limits}}}}}]"
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"
    checked = check(read_all(text.encode(), "file"))
    assert checked.findings == ()
    assert checked.objects[0].meaning == "pods with rdma/ib: ?, vke.volcengine.com/rdma: ?"


def test_a_form_that_another_project_may_fill_in_is_a_warning():
    """In a kind of Kubernetes it is refused."""
    spec = "containers: [{name: a, resources: {limits: {rdma/ib: many}}}]"
    for kind, count in (("argoproj.io/v1 Workflow", 0), ("apps/v1 Deployment", 1)):
        version, word = kind.split()
        text = f"apiVersion: {version}\nkind: {word}\nspec: {{template: {{spec: {{{spec}}}}}}}\n"
        checked = check(read_all(text.encode(), "file"))
        assert (len(checked.errors), len(checked.findings)) == (count, 1)
        assert "is not a whole number of shares" in checked.findings[0].problem


def test_annotations_around_a_template_are_seen_with_whose_they_are():
    inside = '{spec: {containers: [{name: a}]}, metadata: {annotations: {x: "3"}}}'
    text = (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {annotations: {x: '1'}}\nspec:\n"
        f"  jobTemplate: {{metadata: {{annotations: {{x: '2'}}}}, spec: {{template: {inside}}}}}\n"
    )
    (manifest,) = objects(text)
    above = list(annotations_above(manifest, list(pods(manifest))))
    assert [(one.key, one.owner) for one in above] == [("x", "CronJob"), ("x", "jobTemplate")]
    assert above[1].path == ("spec", "jobTemplate", "metadata", "annotations", "x")
