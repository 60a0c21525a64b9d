"""Pods in manifests and requests: what is read of them, and that nothing in them is a crash."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.admission.documents import pod_manifest
from kube_rdma.admission.rules.completions import completions
from kube_rdma.admission.rules.findings import findings
from kube_rdma.lib.text.document import of_value, section
from kube_rdma.lib.text.reader import MOST_OF_MANIFESTS, read_all
from kube_rdma.model.admission import ContainerRole, NodeDemand, PodTemplate
from tests.kit.refusals import refusal

POD = """\
metadata:
  generateName: a-
  annotations: {k8s.v1.cni.cncf.io/networks: "other/net, two"}
spec:
  nodeSelector: {pool: a}
  affinity:
    podAffinity: {}
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: zone, operator: In, values: [a, b]}
          - {key: gpu, operator: Exists}
  hostNetwork: true
  securityContext: {runAsUser: 7, fsGroup: 3}
  initContainers:
  - {name: first, resources: {requests: {rdma/hca: 1}}}
  - {name: beside, restartPolicy: Always, securityContext: {runAsUser: 0}}
  containers:
  - name: main
    image: x
    env:
    resources: {limits: {cpu: 500m, memory: 1.5Gi, rdma/hca: "1k"}, requests: {rdma/hca: 1k}}
    securityContext: {privileged: true, capabilities: {add: [IPC_LOCK], drop: [ALL]}}
    volumeMounts: [{name: shm, mountPath: /dev/shm, readOnly: false}]
  volumes:
  - {name: shm, emptyDir: {medium: Memory}}
  - {name: empty, emptyDir: {}}
"""


def load(text):
    (document,) = read_all(text.encode(), "pod.yaml")
    return pod_manifest.load(document)


def test_all_that_rules_look_at_is_read():
    pod = load(POD)
    first, beside, main = pod.containers
    assert (pod.namespace, pod.name, pod.host_network) == ("default", "a-", True)
    assert (first.role, beside.role, main.role) == tuple(ContainerRole)
    assert (first.own_user, beside.own_user, main.own_user) == (True, False, True)
    assert [(ask.count, ask.path[-2:]) for one in (first, main) for ask in one.asks] == [
        (1, ("requests", "rdma/hca")),
        (1000, ("limits", "rdma/hca")),
    ]
    assert (main.added, main.dropped, main.privileged) == (("IPC_LOCK",), ("ALL",), True)
    assert main.mounts == (("shm", "/dev/shm"),)
    assert pod.selector == (("pool", "a"),)
    assert pod.alternatives == ((NodeDemand("zone", ("a", "b")),),)
    assert [(ask.namespace, ask.network) for ask in pod.networks] == [
        ("other", "net"),
        ("default", "two"),
    ]
    assert pod.blocks is None


BLOCKS = "k8s.volcengine.com/pod-networks"


@pytest.mark.parametrize(
    ("annotations", "networks"),
    [
        ({BLOCKS: '[{"cniConf": {"name": "a"}}, {"cniConf": {"name": "b"}}]'}, ["a", "b"]),
        ({BLOCKS: '[{"cniConf": {"name": "x"}, "master": true}]'}, []),
        ({BLOCKS: " "}, []),
        ({BLOCKS: "[]", f"{BLOCKS}-definition": '[{"name": "a"}]'}, None),
        ({}, None),
    ],
)
def test_blocks_are_counted_where_somebody_can(annotations, networks):
    pod = pod_manifest.load(of_value({"metadata": {"annotations": annotations}}))
    assert (pod.blocks if pod.blocks is None else [one.network for one in pod.blocks]) == networks


QUANTITIES = {
    2: 2,
    "2": 2,
    "1k": 1000,
    "1Ki": 1024,
    3.0: 3,
    "0": 0,
    "1.50": None,
    "1m": None,
    "two": None,
    -1: None,
    True: None,
    "٣": None,
    "9" * 40: None,
    "1.": None,
}


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_share_is_asked_for_in_whole_numbers(quantity):
    """A quantity as Kubernetes writes it; no half card."""
    limits = {"rdma/hca": quantity}
    document = of_value({"spec": {"containers": [{"resources": {"limits": limits}}]}}, "Pod a")
    if (expected := QUANTITIES[quantity]) is None:
        caught = refusal(pod_manifest.load, document)
        assert caught.where == 'Pod a: spec.containers[0].resources.limits."rdma/hca"'
    else:
        ((ask,),) = (one.asks for one in pod_manifest.load(document).containers)
        assert ask.count == expected


def test_every_fault_has_its_line():
    text = "kind: Pod\nspec:\n  hostNetwork: yes\n  containers:\n    resources: {}\n"
    caught = refusal(load, text)
    assert [one.where for one in (caught, *caught.more)] == [
        "pod.yaml:3:16: spec.hostNetwork",
        "pod.yaml:5:5: spec.containers",
    ]


def test_a_template_is_read_where_it_stands():
    text = "spec:\n  template:\n    spec: {containers: 3}\n"
    (document,) = read_all(text.encode(), "job.yaml")
    caught = refusal(pod_manifest.load, section(document, ("spec", "template")))
    assert caught.where == "job.yaml:3:24: spec.template.spec.containers"


def test_all_documents_of_a_text_are_read_with_their_lines():
    text = "---\n# nothing\n---\na: 1\n---\n\nb: 2\n...\n"
    first, second = read_all(text.encode(), "x")
    assert (first.value, first.where(("a",))) == ({"a": 1}, "x:4:4: a")
    assert (second.value, second.where(("b",))) == ({"b": 2}, "x:7:4: b")
    assert read_all(b"# nothing\n", "x") == ()
    (document,) = read_all(b'{"a":\t1}', "x")
    assert document.value == {"a": 1}


def test_files_are_long_and_deep_within_limits():
    """Definitions of others are; without a limit a text of brackets would exhaust the stack."""
    text = "---\n".join(f"a: {number}\n" for number in range(500))
    assert [one.value for one in read_all(text.encode(), "x")] == [{"a": n} for n in range(500)]
    assert len(read_all(b"[" * 60 + b"]" * 60, "x")) == 1
    for opened, closed in ((b"[", b"]"), (b"- ", b"")):
        (fault,) = read_all(opened * 5000 + b"a" + closed * 5000, "x")
        assert "nested more than 64 levels" in fault.problem
    caught = refusal(read_all, b" " * (MOST_OF_MANIFESTS + 1), "x")
    assert "larger than 16 MiB" in caught.problem


def test_a_fault_in_any_document_is_told():
    good, alias, bracket = read_all(b"a: 1\n---\nb: *x\n---\nc: [\n", "x")
    assert good.value == {"a": 1}
    assert [alias.where, bracket.where] == ["x:3:4: b", "x:6:1"]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(
        ["rdma/hca", "vke.volcengine.com/rdma", "[{", "a,b@c", "/dev/shm", "IPC_LOCK", "9e99"]
    ),
)
FIELDS = st.sampled_from(
    [
        *("metadata", "annotations", "spec", "containers", "initContainers", "resources"),
        *("limits", "requests", "rdma/hca", "vke.volcengine.com/rdma", "volumes", "volumeMounts"),
        *("nodeSelector", "affinity", "nodeAffinity", "securityContext", "capabilities", "add"),
        *("hostNetwork", "emptyDir", "csi", "name", "kube-rdma.io/complete", BLOCKS),
        "requiredDuringSchedulingIgnoredDuringExecution",
        "k8s.v1.cni.cncf.io/networks",
    ]
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(FIELDS, inner, max_size=4)
    ),
    max_leaves=30,
)


def judged(value):
    """What is found in and added to a pod; None where its form is refused."""
    try:
        pod = pod_manifest.load(of_value(value))
    except Refused:
        return None
    assert isinstance(pod, PodTemplate)
    return findings(pod), completions(pod)


@given(ANYTHING)
def test_no_value_is_a_crash(value):
    judged(value)


@given(st.fixed_dictionaries({"metadata": ANYTHING, "spec": ANYTHING}))
def test_no_pod_is_a_crash(value):
    judged(value)


TEXTS = st.one_of(st.text(max_size=40), ANYTHING.map(json.dumps))


@given(TEXTS, TEXTS, TEXTS, st.integers(0, 200))
def test_no_annotation_is_a_crash(networks, blocks, complete, cards):
    limits = {"vke.volcengine.com/rdma": cards}
    annotations = {
        "k8s.v1.cni.cncf.io/networks": networks,
        BLOCKS: blocks,
        "kube-rdma.io/complete": complete,
    }
    spec = {"containers": [{"name": "a", "resources": {"limits": limits}}]}
    assert judged({"metadata": {"annotations": annotations}, "spec": spec}) is not None


@settings(max_examples=5)
@given(st.integers(200, 900))
def test_hundreds_of_containers_are_judged(count):
    """Each gets its completion; nothing is told twice for the pod."""
    limits = {"vke.volcengine.com/rdma": 2}
    spec = {
        "containers": [{"name": f"c{n}", "resources": {"limits": limits}} for n in range(count)]
    }
    found, added = judged({"metadata": {}, "spec": spec})
    assert [one.code for one in found] == ["block-count"]
    assert len(added) == count
