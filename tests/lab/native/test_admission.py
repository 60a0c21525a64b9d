"""Pods at a real API server with the policies of docs/admission.md: what they refuse and complete.

What they refuse the rules refuse, and what they complete is what the rules complete; each pod here
is shown to both. So are workloads with such pods, which are warned of, and parameters of claims.
Nothing runs: the API server is asked without keeping the object.
"""

import json

import pytest
import yaml

from kube_base.errors import Refused, Unavailable
from kube_rdma.admission.documents import pod_manifest
from kube_rdma.admission.rules.completions import completions
from kube_rdma.admission.rules.findings import findings
from kube_rdma.attach.rules.requests import ANNOTATION, POD_NETWORKS, POD_NETWORKS_DEFINITION
from kube_rdma.claims import parameters
from kube_rdma.install.installation import assignment, objects
from kube_rdma.lib.text.document import of_value
from kube_rdma.model.admission import Completes
from kube_rdma.model.finding import Severity
from kube_rdma_lab import cluster
from kube_rdma_lab.waiting import until
from tests.house.tree import ROOT
from tests.kit import manifests
from tests.kit.admission import VKE, asking, blocks, container, networks, pod

LABEL = "vke.node.rdma.mode"
TEAM = "admission"
BASELINE = "admission-baseline"
TWO = blocks("rdma", "rdma")
VEPFS = {"name": "data", "csi": {"driver": "vepfs.csi.volcengine.com", "volumeAttributes": {}}}
LOCKED = {"privileged": True}
WISH = "kube-rdma.io/complete"
VALUES = (
    *("check=true", "complete=true"),
    *("hostNetworkResources=rdma/hca", "networkResources=rdma/nic\\,rail/*"),
)


FOREIGN = {
    "JobSet": ("jobset.x-k8s.io", "JobSet"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    "PyTorchJob": ("kubeflow.org", "PyTorchJob"),
    "RayCluster": ("ray.io", "RayCluster"),
    "RayJob": ("ray.io", "RayJob"),
    "volcano's Job": ("batch.volcano.sh", "Job"),
    "nobody knows": ("example.org", "Trainer"),
}


def definition(group, kind):
    """A kind of another project, with any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # As kubernetes-sigs has it: groups of its own need somebody's approval.
        "metadata": {
            "name": f"{names['plural']}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": spec,
    }


@pytest.fixture(scope="module")
def lab(native):
    """Native nodes with the policies for pods in force, and two namespaces."""
    values = [assignment(f"admission.pods.{one}") for one in VALUES]
    values += map(assignment, ("admission.install=false", "claims.enabled=true"))
    policies = objects(values, "vke", "admission")
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    for name, labels in ((TEAM, {}), (BASELINE, level)):
        metadata = {"name": name, "labels": labels}
        cluster.apply(native, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    cluster.apply(native, *policies, *(definition(*words) for words in FOREIGN.values()))
    for group, kind in FOREIGN.values():
        cluster.wait(native, f"crd/{kind.lower()}s.{group}", "--for=condition=Established")
    try:
        yield native
    finally:
        for group, kind in FOREIGN.values():
            cluster.kubectl(native, "delete", "crd", f"{kind.lower()}s.{group}")
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
    return [each.severity for each in findings(pod_manifest.load(of_value(manifest)))]


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
    "mode shared-multi is not recommended": pod(
        asking() | {"resources": {"limits": {VKE: 2, "nvidia.com/gpu": 1}}},
        annotations=TWO,
        nodeSelector={LABEL: "shared-multi"},
    ),
    "Add hostNetwork": pod(asking("rdma/hca", 1)),
}
JSON = json.dumps([{"name": "a", "interface": "net1"}, {"Name": "b", "namespace": "c"}], indent=2)
FEW = {
    "for 1 of": ("no network", pod(asking("rdma/nic", 1))),
    "8 and 7": (
        "asks for 8 of rdma/nic, rail/* and for too few networks, 7. On RoCE",
        pod(asking("rdma/nic", 8), annotations=networks(*["rails"] * 7)),
    ),
    "JSON": ("too few networks, 2", pod(asking("rdma/nic", 3), annotations={ANNOTATION: JSON})),
    "two containers": (
        "asks for 3 of",
        pod(asking("rdma/nic", 1), asking("rail/a", 2, name="b"), annotations=networks("a", "")),
    ),
    "hundreds of containers": (
        "asks for 300 of",
        pod(*[asking("rdma/nic", 1, name=f"c{number}") for number in range(300)]),
    ),
    "an init container": (
        "asks for 2 of",
        pod(container(), initContainers=[asking("rdma/nic", 2, name="i")]),
    ),
}
SILENT = (
    pod(asking(), annotations=TWO),
    pod(asking(VKE, 1), annotations=blocks("rdma")),
    pod(asking("rdma/hca", 1), hostNetwork=True),
    pod(asking("rdma/nic", 8), hostNetwork=True),
    pod(asking("rdma/nic", 2), annotations=networks("a", " b@net2")),
    pod(asking("rdma/nic", 2), annotations={ANNOTATION: JSON}),
    # Another key may be called so: what cannot be counted is not warned of.
    pod(asking("rdma/nic", 2), annotations={ANNOTATION: '[{"name":"a","cni-args":{"name":"b"}}]'}),
    pod(asking("rdma/nic", 1), resourceClaims=[{"name": "a", "resourceClaimName": "a"}]),
    pod(asking("rdma/nic", 1), annotations={"v1.multus-cni.io/default-network": "fast"}),
    pod(asking("rdma/nic", 1), initContainers=[asking("rdma/nic", 1, name="i")])
    | {"metadata": {"name": "pod", "annotations": networks("a")}},
    pod(asking("rdma/other", 1)),
)


@pytest.fixture(scope="module")
def warned(lab, create, tmp_path_factory):
    """Say what the API server warns of, or refuses, of an object that it does not keep."""
    path = tmp_path_factory.mktemp("warned") / "object.json"

    def ask(document, verb="create"):
        document = json.loads(json.dumps(document))
        document["metadata"]["namespace"] = TEAM
        path.write_text(json.dumps(document))
        words = (verb, "--dry-run=server", "--warnings-as-errors", "-f", str(path))
        try:
            cluster.kubectl(lab, *words)
        except Unavailable as error:
            return str(error)
        return ""

    return ask


@pytest.fixture(scope="module")
def warnings(warned):
    """Say what the API server warns of in a pod."""

    def ask(manifest):
        head = {"apiVersion": "v1", "kind": "Pod"}
        return warned(template_of(manifest, "Never") | head | {"metadata": manifest["metadata"]})

    return ask


@pytest.mark.parametrize("text", WARNED)
def test_what_is_not_recommended_is_a_warning(create, warnings, text):
    assert create(WARNED[text]).made
    assert text in warnings(WARNED[text])
    if "hostNetwork" not in text:  # that is known of the installation's pool, not of the pod
        assert Severity.WARNING in judged(WARNED[text])


@pytest.mark.parametrize("case", FEW)
def test_shares_without_networks_are_a_warning_where_a_value_names_the_resource(warnings, case):
    text, manifest = FEW[case]
    assert text in warnings(manifest)


@pytest.mark.parametrize("manifest", SILENT)
def test_what_is_recommended_is_silent(warnings, manifest):
    assert warnings(manifest) == ""


def template_of(manifest, restart="Always"):
    """The pod as a template: with an image, and a label to be selected by."""
    spec = json.loads(json.dumps(manifest["spec"]))
    for one in (*spec["containers"], *spec.get("initContainers", ())):
        one["image"] = "example.org/none:1"
    metadata = {"labels": {"app": "a"}, "annotations": manifest["metadata"]["annotations"]}
    return {"metadata": metadata, "spec": spec | {"restartPolicy": restart}}


def job(template):
    return {"template": template}


GOOD = pod(asking("rdma/hca", 1), hostNetwork=True)
# Kind by kind: API version, restart policy, and the object around one template or two.
WORKLOADS = {
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"),
        ("apps/v1", "Always", lambda t, _: {"selector": APP, "template": t}),
    ),
    "ReplicationController": (
        "v1",
        "Always",
        lambda t, _: {"selector": {"app": "a"}, "template": t},
    ),
    "Job": ("batch/v1", "Never", lambda t, _: job(t)),
    "CronJob": (
        "batch/v1",
        "Never",
        lambda t, _: {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job(t)}},
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1",
        "Never",
        lambda t, good: {
            "replicatedJobs": [
                {"name": name, "template": {"spec": job(each)}}
                for name, each in (("good", good), ("a", t))
            ]
        },
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        "Always",
        lambda t, good: {"leaderWorkerTemplate": {"leaderTemplate": good, "workerTemplate": t}},
    ),
    "PyTorchJob": (
        "kubeflow.org/v1",
        "Never",
        lambda t, good: {
            "pytorchReplicaSpecs": {"Master": {"template": good}, "Worker": {"template": t}}
        },
    ),
    "RayCluster": (
        "ray.io/v1",
        "Always",
        lambda t, good: {
            "headGroupSpec": {"template": good},
            "workerGroupSpecs": [{"groupName": "a", "template": t}],
        },
    ),
    "RayJob": (
        "ray.io/v1",
        "Never",
        lambda t, _: {"rayClusterSpec": {"headGroupSpec": {"template": t}}},
    ),
    "volcano's Job": (
        "batch.volcano.sh/v1",
        "Never",
        lambda t, good: {"tasks": [{"template": good}, {"template": t}]},
    ),
}
APP = {"matchLabels": {"app": "a"}}


def workload(name, manifest):
    """An object of a kind whose pods, or some of them, are like this one."""
    version, restart, around = WORKLOADS[name]
    spec = around(template_of(manifest, restart), template_of(GOOD, restart))
    return manifests.manifest(version, name.split()[-1], "a", spec)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_whose_pods_would_be_refused_or_warned_of_is_made_with_a_warning(warned, name):
    """The pod's author sees it, not the controller that makes the pod."""
    assert "RDMA and mGPU cannot be used together" in warned(workload(name, REFUSED["mGPU"]))
    assert "the pod has 2 blocks" in warned(workload(name, REFUSED["too few blocks"]))
    for text, manifest in WARNED.items():
        answer = warned(workload(name, manifest))
        assert text in answer
        assert "denied request" not in answer
    assert warned(workload(name, GOOD)) == ""


def test_a_template_of_pods_alone_is_warned_of(warned):
    head = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"}}
    wrong, right = template_of(WARNED["Add hostNetwork"]), template_of(GOOD)
    assert "Add hostNetwork" in warned(head | {"template": wrong})
    assert warned(head | {"template": right}) == ""


def test_a_workload_of_a_kind_that_no_policy_knows_is_made_in_silence(warned):
    head = {"apiVersion": "example.org/v1", "kind": "Trainer", "metadata": {"name": "a"}}
    spec = {"template": template_of(REFUSED["mGPU"])}
    assert warned(head | {"spec": spec}) == ""


def test_a_kind_of_another_form_than_the_policy_knows_is_made(warned):
    """What cannot be evaluated is admitted."""
    for spec in ({}, {"pytorchReplicaSpecs": 7}, {"pytorchReplicaSpecs": {"a": {}}}):
        head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}}
        assert warned(head | {"spec": spec}) == ""


def test_workloads_of_the_documents_are_warned_of(warned):
    """S0 has a Job and S1 a Deployment; their own pods are not what a person creates."""
    job, deployment = (
        yaml.safe_load((ROOT / "examples" / one).read_text())
        for one in ("s0-ack/job.yaml", "s1-vke/deployment.yaml")
    )
    assert (warned(job), warned(deployment)) == ("", "")
    del job["spec"]["template"]["spec"]["hostNetwork"]
    assert "Add hostNetwork: true" in warned(job)
    del deployment["spec"]["template"]["metadata"]["annotations"]
    assert "for no network, so it gets their device nodes" in warned(deployment)


def test_only_what_a_person_writes_of_a_workload_is_looked_at(lab, warned):
    """Not what a controller makes of it, nor a change of anything but its spec."""
    made = workload("ReplicaSet", WARNED["Add hostNetwork"])
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "u"}
    assert "Add hostNetwork" in warned(made)
    made["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    assert warned(made) == ""
    del made["metadata"]["ownerReferences"]
    made["spec"]["replicas"] = 0
    made["metadata"]["namespace"] = TEAM
    cluster.apply(lab, made)
    made["metadata"]["labels"] = {"a": "b"}
    assert warned(made, "replace") == ""
    made["spec"]["replicas"] = 1
    assert "Add hostNetwork" in warned(made, "replace")


HEAD = {"apiVersion": parameters.API_VERSION, "kind": parameters.KIND}
RIGHT = (
    {},
    {"network": "team-a/rdma-net", "mtu": 9000, "mac": "02:00:0a:00:00:01"},
    {"network": None, "mtu": None, "type": None, "addresses": None, "defaultRoute": None},
    {"type": "macvlan", "mode": "bridge", "pool": "rail-0", "interface": "rdma0", "mtu": 0},
    {"type": "ipoib", "guid": "02:00:0a:00:00:00:00:01", "defaultRoute": True},
    {"addresses": [f"10.0.0.{n}/24" for n in range(16)], "routes": []},
    {"routes": [{"dst": "10.0.0.0/8", "gw": "10.0.0.1"}, {"dst": "10.1.0.0/16", "gw": None}]},
)
WRONG = (
    {"kind": "Parameters"},
    {"apiVersion": "kube-rdma.io/v2"},
    {"mtus": 9000},
    {"mtu": "9000"},
    {"mtu": 70000},
    {"mtu": -1},
    {"network": 7},
    {"type": "sriov"},
    {"mode": "passthru"},
    {"interface": ["rdma0"]},
    {"defaultRoute": "true"},
    {"addresses": "10.0.0.1/24"},
    {"addresses": [f"10.0.{n}.1/24" for n in range(17)]},
    {"addresses": [7]},
    {"routes": [{"gw": "10.0.0.1"}]},
    {"routes": [{"dst": "10.0.0.0/8", "via": "10.0.0.1"}]},
    {"routes": [{"dst": "10.0.0.0/8"}] * 17},
    {"pool": "a" * 400},
)


def claims(fields, driver="rdma.kube-rdma.io"):
    """A claim, a template and a class with these parameters."""
    config = [{"opaque": {"driver": driver, "parameters": HEAD | fields}}]
    request = {"name": "card", "exactly": {"deviceClassName": "rdma"}}
    devices = {"devices": {"requests": [request], "config": config}}
    for kind, spec in (
        ("ResourceClaim", devices),
        ("ResourceClaimTemplate", {"spec": devices}),
        ("DeviceClass", {"config": config}),
    ):
        version = "resource.k8s.io/v1"
        yield {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}


def is_read(fields):
    """Whether kube-rdma's driver takes the parameters."""
    try:
        parameters.of_document(of_value(HEAD | fields))
    except Refused:
        return False
    return True


@pytest.mark.parametrize("fields", RIGHT, ids=range(len(RIGHT)))
def test_parameters_that_the_driver_reads_are_admitted(warned, fields):
    assert is_read(fields)
    for document in claims(fields):
        assert warned(document) == ""


@pytest.mark.parametrize("fields", WRONG, ids=range(len(WRONG)))
def test_parameters_of_another_form_are_refused_in_claims_templates_and_classes(warned, fields):
    assert not is_read(fields)
    for document in claims(fields):
        assert "denied request: opaque.parameters" in warned(document)
    for document in claims(fields, "gpu.example.com"):
        assert warned(document) == ""


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
