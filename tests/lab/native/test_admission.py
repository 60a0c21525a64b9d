"""Pods at a real API server with the policies of docs/admission.md: what they refuse and complete.

What they refuse the rules refuse, and what they complete is what the rules complete; each pod here
is shown to both. Nothing runs: the API server is asked without keeping the pod.
"""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma.api.admission import pod_manifest
from kube_rdma.api.text.document import of_value
from kube_rdma.model.admission.facts import Completes
from kube_rdma.model.finding import Severity
from kube_rdma.programs.install.installation import assignment, objects
from kube_rdma.rules.admission.completions import completions
from kube_rdma.rules.admission.findings import findings
from kube_rdma.rules.attach.requests import POD_NETWORKS, POD_NETWORKS_DEFINITION
from kube_rdma_lab import cluster
from kube_rdma_lab.waiting import until
from tests.kit.admission import VKE, asking, blocks, container, networks, pod

LABEL = "vke.node.rdma.mode"
TEAM = "admission"
BASELINE = "admission-baseline"
TWO = blocks("rdma", "rdma")
VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com", "volumeAttributes": {}}}
LOCKED = {"privileged": True}
WISH = "kube-rdma.io/complete"
VALUES = ("check=true", "complete=true", "hostNetworkResources=rdma/hca")


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with the policies for pods in force, and two namespaces."""
    values = [assignment(f"admission.pods.{one}") for one in VALUES]
    values.append(assignment("admission.install=false"))
    policies = objects(values, "vke", "admission")
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    for name, labels in ((TEAM, {}), (BASELINE, level)):
        metadata = {"name": name, "labels": labels}
        cluster.apply(native, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    cluster.apply(native, *policies)
    try:
        yield native
    finally:
        for one in policies:
            cluster.kubectl(native, "delete", one["kind"], one["metadata"]["name"])
        cluster.kubectl(native, "delete", "namespace", TEAM, BASELINE)


class Answer:
    """What the API server made of a pod, or why it did not."""

    def __init__(self, text, made=None):
        self.text = text
        self.made = made


@pytest.fixture(scope="module")
def create(lab, tmp_path_factory):
    """Let the API server judge a pod without keeping it."""
    path = tmp_path_factory.mktemp("pods") / "pod.json"

    def ask(manifest, namespace=TEAM):
        manifest = json.loads(json.dumps(manifest))
        manifest |= {"apiVersion": "v1", "kind": "Pod"}
        manifest["metadata"]["namespace"] = namespace
        for one in (*manifest["spec"]["containers"], *manifest["spec"].get("initContainers", ())):
            one["image"] = "example.org/none:1"
        path.write_text(json.dumps(manifest))
        words = ("create", "--dry-run=server", "-o", "json", "-f", str(path))
        try:
            said = cluster.kubectl(lab, *words)
        except Unavailable as error:
            return Answer(str(error))
        return Answer("", json.loads(said))

    def in_force():
        answer = ask(COMPLETED["nothing said"])
        return "mGPU" in ask(REFUSED["mGPU"]).text and shown(answer.made["spec"])["added"]["main"]

    until(lab, "policies in force", in_force)
    return ask


def slices(**rest):
    return asking("vke.volcengine.com/mgpu-core", 30, name="slices", **rest)


def affine(*values):
    """An affinity to nodes of these modes."""
    expression = {"key": LABEL, "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


REFUSED = {
    "mGPU": pod(asking(), slices(), annotations=TWO),
    "mGPU in an init container": pod(asking(), initContainers=[slices()], annotations=TWO),
    "too few blocks": pod(asking(VKE, 4), annotations=TWO),
    "too many blocks": pod(asking(VKE, 1), annotations=TWO),
    "blocks without a card": pod(container(), annotations=TWO),
    "no block in the list": pod(asking(), annotations=blocks()),
    "vePFS": pod(asking(), annotations=TWO, nodeSelector={LABEL: "exclusive"}, volumes=[VEPFS]),
    "vePFS by affinity": pod(
        asking(), annotations=TWO, affinity=affine("exclusive"), volumes=[VEPFS]
    ),
}
ADMITTED = {
    "as the document writes it": pod(asking(), annotations=TWO),
    "no RDMA": pod(slices(), volumes=[VEPFS]),
    "no limits at all": pod({"name": "a"}),
    "one container of several": pod(asking(), {"name": "b"}, container(name="c"), annotations=TWO),
    "an init container's cards": pod(asking(), initContainers=[asking(name="i")], annotations=TWO),
    "vePFS in shared": pod(
        asking(), annotations=TWO, nodeSelector={LABEL: "shared"}, volumes=[VEPFS]
    ),
    "vePFS in two modes": pod(
        asking(), annotations=TWO, affinity=affine("exclusive", "shared"), volumes=[VEPFS]
    ),
    "another network's block": pod(asking(), annotations=blocks("rdma", "rdma", "slow")),
    "a list that Cello completes": pod(
        asking(), annotations={POD_NETWORKS: "[]", POD_NETWORKS_DEFINITION: '[{"name": "a"}]'}
    ),
    "the cluster's own network": pod(
        asking(VKE, 1),
        annotations={
            POD_NETWORKS: '[{"cniConf": {"name": "cello"}, "master": true}, '
            '{"cniConf": {"name": "rdma"}}]'
        },
    ),
    "blocks on lines": pod(
        asking(),
        annotations={POD_NETWORKS: json.dumps([{"cniConf": {"name": "rdma"}}] * 2, indent=4)},
    ),
}


def judged(manifest):
    """The severities of what the rules find."""
    template = pod_manifest.load(of_value(manifest))
    return [each.severity for each in findings(template)]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_policy_refuses_the_rules_refuse(create, name):
    assert "denied request" in create(REFUSED[name]).text
    assert Severity.ERROR in judged(REFUSED[name])


@pytest.mark.parametrize("name", ADMITTED)
def test_what_is_right_is_admitted(create, name):
    assert create(ADMITTED[name]).made
    assert Severity.ERROR not in judged(ADMITTED[name])


def test_a_refusal_says_the_field_and_both_numbers(create):
    text = create(REFUSED["too few blocks"]).text
    assert f"metadata.annotations[{POD_NETWORKS}]: the pod has 2 blocks" in text
    assert "ask for 4 of vke.volcengine.com/rdma" in text


def test_kube_system_is_left_alone(create):
    """Whatever a policy says, what repairs a cluster can start there."""
    assert create(REFUSED["mGPU"], "kube-system").made


WARNED = {
    "for no network": pod(asking()),
    "than the recommended": pod(asking(VKE, 1), annotations=blocks("rdma")),
    "mode shared-multi is not recommended": pod(
        asking() | {"resources": {"limits": {VKE: 2, "nvidia.com/gpu": 1}}},
        annotations=TWO,
        nodeSelector={LABEL: "shared-multi"},
    ),
    "Add hostNetwork": pod(asking("rdma/hca", 1)),
}
SILENT = (pod(asking(), annotations=TWO), pod(asking("rdma/hca", 1), hostNetwork=True))


@pytest.fixture(scope="module")
def warnings(lab, create, tmp_path_factory):
    """Say what the API server warns of."""
    path = tmp_path_factory.mktemp("warned") / "pod.json"

    def ask(manifest):
        metadata = {**manifest["metadata"], "namespace": TEAM}
        spec = json.loads(json.dumps(manifest["spec"]))
        for one in spec["containers"]:
            one["image"] = "example.org/none:1"
        path.write_text(
            json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        )
        words = ("create", "--dry-run=server", "--warnings-as-errors", "-f", str(path))
        try:
            cluster.kubectl(lab, *words)
        except Unavailable as error:
            return str(error)
        return ""

    return ask


@pytest.mark.parametrize("text", WARNED)
def test_what_is_not_recommended_is_a_warning(create, warnings, text):
    assert create(WARNED[text]).made
    assert text in warnings(WARNED[text])
    if "hostNetwork" not in text:  # that is known of the installation's pool, not of the pod
        assert Severity.WARNING in judged(WARNED[text])


@pytest.mark.parametrize("manifest", SILENT)
def test_what_is_recommended_is_silent(warnings, manifest):
    assert warnings(manifest) == ""


COMPLETED = {
    "nothing said": pod(asking("rdma/a", 1)),
    "an empty context": pod(asking("rdma/a", 1, security={})),
    "empty capabilities": pod(asking("rdma/a", 1, security={"capabilities": {}})),
    "another capability": pod(
        asking("rdma/a", 1, security={"capabilities": {"add": ["SYS_NICE"]}})
    ),
    "another capability dropped": pod(
        asking("rdma/a", 1, security={"capabilities": {"drop": ["NET_RAW"]}})
    ),
    "all dropped": pod(asking("rdma/a", 1, security={"capabilities": {"drop": ["ALL"]}})),
    "present": pod(asking("rdma/a", 1, security={"capabilities": {"add": ["IPC_LOCK"]}})),
    "privileged": pod(asking("rdma/a", 1, security=LOCKED)),
    "another user": pod(asking("rdma/a", 1), securityContext={"runAsUser": 7}),
    "root again": pod(
        asking("rdma/a", 1, security={"runAsUser": 0}), securityContext={"runAsUser": 7}
    ),
    "no share": pod(container()),
    "two of three": pod(
        asking("rdma/a", 1),
        container(name="b"),
        asking("rdma/b", 1, name="c"),
        initContainers=[asking("rdma/a", 1, name="i")],
    ),
    "memory": pod(asking("rdma/a", 1), annotations={WISH: "shm=1Gi"}),
    "memory as it is": pod(asking("rdma/a", 1), annotations={WISH: "shm"}),
    "memory for two": pod(
        asking("rdma/a", 1), asking("rdma/a", 1, name="b"), annotations={WISH: "ipc-lock, shm=2Gi"}
    ),
    "memory beside other volumes": pod(
        asking("rdma/a", 1, volumes=[("x", "/x")]),
        annotations={WISH: "shm"},
        volumes=[{"name": "x", "emptyDir": {}}],
    ),
    "memory of its own": pod(
        asking("rdma/a", 1, volumes=[("x", "/dev/shm")]),
        annotations={WISH: "shm"},
        volumes=[{"name": "x", "emptyDir": {}}],
    ),
    "blocks": pod(asking(VKE, 4), annotations={WISH: "pod-networks"}),
    "copies of a block": pod(asking(VKE, 4), annotations={WISH: "pod-networks", **blocks("rdma")}),
    "blocks beside networks": pod(
        asking("rdma/a", 1), annotations={WISH: "pod-networks", **networks("a")}
    ),
    "nothing wanted": pod(asking("rdma/a", 1), annotations={WISH: "none"}),
}


def shown(spec):
    """What completion can change, by the names of containers."""
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    volumes = [one for one in spec.get("volumes", ()) if "emptyDir" in one]
    return {
        "volumes": sorted(volumes, key=lambda one: one["name"]),
        "added": {
            one["name"]: one.get("securityContext", {}).get("capabilities", {}).get("add", [])
            for one in containers
        },
        "mounts": {
            one["name"]: {
                (mount["name"], mount["mountPath"])
                for mount in one.get("volumeMounts", ())
                if not mount["mountPath"].startswith("/var/run/secrets")
            }
            for one in containers
        },
    }


def done(manifest):
    """The pod with what the rules complete."""
    made = json.loads(json.dumps(manifest))
    for one in completions(pod_manifest.load(of_value(manifest))):
        *before, last = one.path
        place = made
        for number, step in enumerate(before):
            if isinstance(place, list):
                place = place[step]
            else:
                nothing = [] if one.path[number + 1] == "-" else {}
                place = place.setdefault(step, nothing)
        if last == "-":
            place.append(one.value)
        else:
            place[last] = one.value
    return made


@pytest.mark.parametrize("name", COMPLETED)
def test_a_policy_completes_what_the_rules_complete(create, name):
    answer = create(COMPLETED[name])
    assert answer.made, answer.text
    expected = done(COMPLETED[name])
    assert shown(answer.made["spec"]) == shown(expected["spec"])
    kept = answer.made["metadata"].get("annotations", {}).get(POD_NETWORKS, "null")
    wanted = expected["metadata"]["annotations"].get(POD_NETWORKS, "null")
    assert json.loads(kept) == json.loads(wanted)


def test_the_cases_need_every_completion():
    """Else a policy that does nothing would pass."""
    kinds = {
        one.path[-2]
        for manifest in COMPLETED.values()
        for one in completions(pod_manifest.load(of_value(manifest)))
    }
    assert kinds == {"add", "volumes", "volumeMounts", "annotations"}
    assert len(Completes) == 3


def test_a_level_of_pod_security_is_not_broken_by_completion(create):
    """The capability would have the pod refused."""
    answer = create(COMPLETED["nothing said"], BASELINE)
    assert shown(answer.made["spec"])["added"] == {"main": []}


def test_hundreds_of_containers_are_admitted(create):
    many = [asking("rdma/a", 1, name=f"c{number}") for number in range(300)]
    answer = create(pod(*many))
    assert answer.made, answer.text
    assert list(shown(answer.made["spec"])["added"].values()) == [["IPC_LOCK"]] * 300
