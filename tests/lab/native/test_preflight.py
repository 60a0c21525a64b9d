"""Policies of a preflight at a real API server: no pod with the annotation starts unmeasured."""

import json

import pytest

from kube_base.errors import Unavailable
from kube_rdma.install.installation import assignment, objects
from kube_rdma.model import preflight as model
from kube_rdma.preflight.views import lines
from kube_rdma_lab import cluster
from kube_rdma_lab.waiting import until

TEAM = "preflight"
VALUES = ("image.repository=localhost/kube-rdma", "controller.preflight=true")
ACCOUNT = "system:serviceaccount:kube-rdma:kube-rdma-controller"


def pod(name="w-0", annotations=None, **spec):
    """A pod that asks for a ring and a share."""
    share = {"limits": {"rdma/nic": 1, "cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": TEAM,
            "annotations": {model.REQUEST: "ring"} if annotations is None else annotations,
        },
        "spec": {
            "containers": [
                {"name": "log", "image": "i"},
                {"name": "c", "image": "i", "resources": share},
            ],
            **spec,
        },
    }


@pytest.fixture(scope="module")
def lab(native):
    """The policies, in force."""
    policies = objects([*map(assignment, VALUES)], "default", "preflight")
    metadata = {"name": TEAM}
    cluster.apply(native, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    cluster.apply(native, *policies)
    try:
        until(native, "the policies", lambda: refused(native, pod(annotations={model.PLAN: "x"})))
        until(native, "the policy that completes", lambda: inits(made(native, pod())))
        yield native
    finally:
        for one in policies:
            cluster.kubectl(native, "delete", one["kind"], one["metadata"]["name"])
        cluster.kubectl(native, "delete", "namespace", TEAM)


def made(lab, manifest, *words):
    """What the API server makes of a pod, without keeping it."""
    words = ("create", "--dry-run=server", "-o", "json", "-f", "-", *words)
    return json.loads(cluster.kubectl(lab, *words, stdin=json.dumps(manifest)))


def refused(lab, manifest, *words):
    """Why the API server refuses a pod; "" if it does not."""
    try:
        made(lab, manifest, *words)
    except Unavailable as error:
        return str(error)
    return ""


def inits(manifest):
    return [one["name"] for one in manifest["spec"].get("initContainers", ())]


def test_a_pod_that_asks_gets_label_volume_and_two_containers(lab):
    found = made(lab, pod())
    assert inits(found) == [model.MEASURES, model.AWAITS]
    assert found["metadata"]["labels"] == {model.REQUEST: "ring"}
    measures, awaits = found["spec"]["initContainers"]
    assert measures["resources"]["limits"] == {"rdma/nic": "1", "cpu": "1"}
    assert awaits["resources"] == measures["resources"]  # the pod keeps its QoS class
    assert (measures["args"], awaits["args"]) == (
        ["preflight", "measure"],
        ["preflight", "verdict"],
    )
    (volume,) = [one for one in found["spec"]["volumes"] if one["name"] == model.MEASURES]
    assert [one["path"] for one in volume["downwardAPI"]["items"]] == ["plan", "verdict"]
    assert all(
        one["volumeMounts"][0]
        == {"mountPath": model.FOLDER, "name": model.MEASURES, "readOnly": True}
        for one in (measures, awaits)
    )
    assert "securityContext" not in measures


def test_the_containers_are_like_the_one_that_has_the_cards(lab):
    """A GPU beside it is no card; what Pod Security demands, it has already."""
    own = pod()
    first, second = own["spec"]["containers"]
    first["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    second["securityContext"] = {"runAsUser": 1000, "allowPrivilegeEscalation": False}
    found = made(lab, own)["spec"]["initContainers"]
    assert [one["resources"]["limits"] for one in found] == [{"rdma/nic": "1", "cpu": "1"}] * 2
    assert [one["securityContext"] for one in found] == [second["securityContext"]] * 2


@pytest.mark.parametrize("where", ["pod", "container"])
@pytest.mark.parametrize(("user", "runs_as"), [({}, 65532), ({"runAsUser": 1000}, None)])
def test_who_may_not_be_root_by_its_own_image_gets_a_user(lab, where, user, runs_as):
    """The image of kube-rdma names none, and the kubelet would refuse to start it."""
    context, own = {"runAsNonRoot": True, **user}, pod()
    (own["spec"] if where == "pod" else own["spec"]["containers"][1])["securityContext"] = context
    for one in made(lab, own)["spec"]["initContainers"]:
        found = one.get("securityContext", {}).get("runAsUser")
        assert found == (1000 if user and where == "container" else runs_as)


def test_its_own_init_containers_come_after_the_verdict(lab):
    own = pod(initContainers=[{"name": "own", "image": "i"}])
    own["metadata"]["labels"] = {"app": "train"}
    found = made(lab, own)
    assert inits(found) == [model.MEASURES, model.AWAITS, "own"]
    assert found["metadata"]["labels"] == {"app": "train", model.REQUEST: "ring"}


def test_a_pod_that_has_its_containers_stays_as_it_is(lab):
    """As an older cluster needs it."""
    written = made(lab, pod())
    for field in ("uid", "creationTimestamp"):
        written["metadata"].pop(field)
    assert made(lab, written)["spec"]["initContainers"] == written["spec"]["initContainers"]


def test_the_lines_of_the_command_are_those_of_the_policy(lab):
    """So an older cluster, without the policy that completes, gets the same pod."""
    image = made(lab, pod())["spec"]["initContainers"][0]["image"]
    added = lines("ring", image)
    found = made(lab, pod(automountServiceAccountToken=False))
    assert found["metadata"]["labels"] == added["metadata"]["labels"]
    for written, completed in zip(
        added["spec"]["initContainers"], found["spec"]["initContainers"], strict=True
    ):
        assert {key: completed[key] for key in written if key != "env"} == {
            key: value for key, value in written.items() if key != "env"
        }
    own = pod(**added["spec"], automountServiceAccountToken=False)
    own["metadata"]["labels"] = added["metadata"]["labels"]
    for one in own["spec"]["initContainers"]:
        one["resources"] = own["spec"]["containers"][1]["resources"]
    spec = made(lab, own)["spec"]
    assert spec["initContainers"] == found["spec"]["initContainers"]
    assert [one for one in spec["volumes"] if one["name"] == model.MEASURES] == [
        one for one in found["spec"]["volumes"] if one["name"] == model.MEASURES
    ]


def test_a_pod_that_asks_for_nothing_stays_as_it_is(lab):
    assert inits(made(lab, pod(annotations={}))) == []


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({model.REQUEST: "mesh"}, "neither ring nor star"),
        ({model.REQUEST: "ring", model.PLAN: "x"}, "Only the controller writes"),
        ({model.REQUEST: "ring", model.VERDICT: "x"}, "Only the controller writes"),
        ({model.VERDICT: "x"}, "Only the controller writes"),
    ],
)
def test_what_would_start_unmeasured_is_refused(lab, annotations, said):
    assert said in refused(lab, pod(annotations=annotations))


def test_a_pod_whose_first_container_only_has_the_name_of_the_other_is_refused(lab):
    alone = pod(initContainers=[{"name": model.MEASURES, "image": "i"}])
    assert "needs the label of this name and two init containers" in refused(lab, alone)


def test_only_the_controller_writes_plan_and_verdict_and_nothing_else_of_a_pod(lab):
    cluster.apply(lab, pod("kept"))

    def patch(change, *words):
        text = json.dumps({"metadata": {"annotations": change}})
        command = (
            "patch",
            "pod",
            "kept",
            "-n",
            TEAM,
            "--dry-run=server",
            "--type=merge",
            "-p",
            text,
        )
        try:
            cluster.kubectl(lab, *command, *words)
        except Unavailable as error:
            return str(error)
        return ""

    cluster.kubectl(
        lab, "create", "clusterrolebinding", "preflight", "--clusterrole=admin", f"--user={ACCOUNT}"
    )
    try:
        as_controller = f"--as={ACCOUNT}"
        until(lab, "its rights", lambda: "cannot" not in patch({"a": "1"}, as_controller))
        assert patch({model.PLAN: "round", model.VERDICT: "round"}, as_controller) == ""
        assert "Only the controller writes" in patch({model.VERDICT: "round"})
        assert patch({"other": "1"}) == ""
        cluster.kubectl(
            lab, "annotate", "pod", "kept", "-n", TEAM, f"{model.PLAN}=x", as_controller
        )
        assert "Only the controller writes" in patch({model.PLAN: None})
        assert "changes nothing of a pod but" in patch({"other": "1"}, as_controller)
        assert "changes nothing of a pod but" in patch({model.REQUEST: "star"}, as_controller)
    finally:
        cluster.kubectl(lab, "delete", "clusterrolebinding", "preflight")
        cluster.kubectl(lab, "delete", "pod", "kept", "-n", TEAM, "--force")
