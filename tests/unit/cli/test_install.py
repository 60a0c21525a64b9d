"""`kube-rdma install` from the outside, against an API server in memory."""

from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner

from kube_base.errors import Refused, Unavailable
from kube_client.kinds import NOTHING, ObjectKind
from kube_client.objects import Cluster
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.pod import (
    CONFIG_MAP,
    DAEMON_SET,
    DEPLOYMENTS,
    DOCUMENT,
)
from kube_rdma.cli.install import install
from kube_rdma.install.cluster import request_for
from kube_rdma.install.installation import assignment, release
from kube_rdma.install.rules.plan import title
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit import device_plugins as kit
from tests.kit.opener import opener_of

IMAGE = "registry.example.com/rdma/kube-rdma:0.2.0"
OWNER = {
    "meta.helm.sh/release-name": "rdma",
    "meta.helm.sh/release-namespace": "kube-system",
}
WORDS = ("--image", IMAGE, "--timeout", "0")
POOLS = ("--set", "pools[0].name=rdma", "--set", "pools[0].spec.ranges[0].subnet=10.0.0.0/24")


def kind_of(document):
    """The kind of an object as the fake serves it, by the way the product asks for it."""
    asked = request_for("get", document)
    names = (asked.group, asked.version, document["kind"], asked.plural)
    return ObjectKind(*names, bool(asked.namespace), spec=DOCUMENT, status=NOTHING)


def described(words=(), preset=""):
    layers = [assignment(f"image.repository={IMAGE.partition(':')[0]},image.tag=0.2.0")]
    layers += [assignment(word) for word in words]
    return release(layers, preset, "v1.36.3", None)


BUILT_IN = {
    (kind.group, kind.kind): kind
    for one in described(["admission.pods.complete=true"], "rails").objects
    if (kind := kind_of(one)) and kind.group not in ("kube-rdma.io", "k8s.cni.cncf.io")
}
SECRET = ObjectKind("", "v1", "Secret", "secrets", namespaced=True, spec=DOCUMENT, status=NOTHING)


def sentences(outcome):
    """What was printed, as if the page had no end."""
    return " ".join(outcome.stdout.split())


def counts(outcome):
    """How many objects are new, changed and unchanged, by their kind."""
    lines = map(str.split, outcome.stdout.splitlines())
    return {line[0]: line[1:] for line in lines if len(line) == 4 and line[0][0].isupper()}


class World:
    """An empty cluster of two nodes, and the command."""

    def __init__(self):
        kinds = {**BUILT_IN, ("apps", "Deployment"): DEPLOYMENTS, ("apps", "DaemonSet"): DAEMON_SET}
        self.server = FakeServer([*kinds.values(), CONFIG_MAP, SECRET])
        for space in ("kube-system", "default"):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        for number in (1, 2):
            self.server.put(NODE, {"metadata": {"name": f"node-{number}"}, "spec": {}})
        self.before = dict(self.server.store.objects)

    def put(self, document):
        self.server.put(kind_of(document), document)

    def run(self, *words):
        return CliRunner().invoke(install, [*WORDS, *words], obj=opener_of(self.server))

    def refused(self, *words):
        """The error, as main turns it into an exit code, with what was told before."""
        outcome = self.run(*words)
        assert isinstance(outcome.exception, (Refused, Unavailable)), outcome.output
        return f"{outcome.stderr}{outcome.exception}"

    @property
    def made(self):
        """The stored objects that were not there at first, by their titles."""
        new = (one for key, one in self.server.store.objects.items() if key not in self.before)
        return {title(one): one for one in new}

    @property
    def writes(self):
        """The requests of the last run that change something."""
        return [
            one
            for line in self.server.lines
            for one in line.requests
            if one.verb in ("create", "patch", "update", "delete")
            if one.plural != "selfsubjectaccessreviews" and "dryRun" not in dict(one.query)
        ]


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("preset", ["default", "rails", "ack", "vke", "nvidia-operator"])
def test_the_first_installation_makes_what_helm_would_make(world, preset):
    outcome = world.run("--preset", preset)
    wanted = {title(one): one for one in described(preset=preset).objects}
    assert world.made.keys() == wanted.keys(), outcome.output
    for name, one in world.made.items():
        metadata, wish = one["metadata"], wanted[name]
        assert metadata["labels"] == wish["metadata"]["labels"]
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "rdma"
        assert metadata["annotations"].items() >= OWNER.items()
        assert one.get("spec") == wish.get("spec")
    assert outcome.stdout.startswith(f"Installed: preset {preset} in namespace ")


def test_the_same_again_changes_nothing_and_says_so(world):
    world.run(*POOLS)
    before, world.server.lines = dict(world.server.store.objects), []
    outcome = world.run(*POOLS)
    assert outcome.stdout.startswith("Nothing to change: preset default in namespace kube-rdma")
    assert not world.writes
    assert world.server.store.objects == before


def test_other_values_change_the_objects_that_have_them_alone(world):
    world.run()
    before = world.made
    outcome = world.run("--set", "logLevel=debug")
    changed = {name for name, one in world.made.items() if one != before[name]}
    assert changed == {
        "DaemonSet kube-rdma/kube-rdma-agent",
        "Deployment kube-rdma/kube-rdma-controller",
    }
    assert "Installed: preset default" in outcome.stdout


def test_a_pool_belongs_to_its_users_once_it_is_made(world):
    world.run(*POOLS)
    world.run(*POOLS[:3], "pools[0].spec.ranges[0].subnet=10.9.0.0/24")
    assert world.made["IPPool rdma"]["spec"]["ranges"] == [{"subnet": "10.0.0.0/24"}]


def test_a_dry_run_writes_nothing_and_shows_what_there_is_to_do(world):
    outcome = world.run("--dry-run", "--preset", "rails")
    assert outcome.exit_code == 0, outcome.output
    assert not world.made
    assert not world.writes
    assert outcome.stdout.startswith("Nothing was changed yet: preset rails in namespace kube-rdma")
    assert counts(outcome)["CustomResourceDefinition"] == ["7", "-", "-"]
    assert "Note: The networks rail-0 to rail-7 have no addresses" in outcome.stdout
    assert "it lacks NetworkAttachmentDefinition." in sentences(outcome)
    assert "✓ 2 of 2 nodes get an agent." in outcome.stdout
    assert "Next: the same command without --dry-run." in outcome.stdout


def test_a_half_installed_release_is_completed(world):
    every = described().objects
    for one in every[: len(every) // 2]:
        if kind_of(one).group in ("", "apiextensions.k8s.io"):
            world.put(one)
    world.server.establish()
    world.run()
    assert world.made.keys() == set(map(title, every))


@pytest.mark.parametrize(
    ("marks", "who"),
    [
        ({}, "nobody's name is on it"),
        ({"labels": {"app.kubernetes.io/managed-by": "kube-rdma"}}, "kube-rdma made it"),
        (
            {
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": OWNER | {"meta.helm.sh/release-name": "other"},
            },
            "it is of Helm's release other in kube-system",
        ),
    ],
)
def test_objects_of_others_are_refused_each_by_name(world, marks, who):
    world.put(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "kube-rdma-view", **marks},
        }
    )
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-rdma", **marks}})
    error = world.refused()
    assert f"Namespace kube-rdma: the cluster has it, and {who}. Use it as it is" in error
    assert f"ClusterRole kube-rdma-view: the cluster has it, and {who}. Remove it" in error
    assert not world.writes


def test_a_namespace_of_somebody_s_own_is_used_as_it_is(world):
    world.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
    world.run("-n", "mine")
    assert "DaemonSet mine/kube-rdma-agent" in world.made
    assert "labels" not in world.made["Namespace mine"]["metadata"]


def test_older_definitions_of_the_release_are_changed(world):
    world.run()
    definition = world.made["CustomResourceDefinition ippools.kube-rdma.io"]
    older = {**definition["spec"], "versions": [{"name": "v1alpha1", "served": True}]}
    world.put({**definition, "spec": older})
    world.server.store._owners.clear()
    outcome = world.run("--dry-run")
    assert counts(outcome)["CustomResourceDefinition"] == ["-", "1", "6"]
    world.run()
    assert world.made["CustomResourceDefinition ippools.kube-rdma.io"]["spec"] == definition["spec"]


def test_where_multus_has_defined_networks_its_definition_stays(world):
    name = "network-attachment-definitions.k8s.cni.cncf.io"
    wanted = described(preset="rails").objects
    definition = next(one for one in wanted if one["metadata"]["name"] == name)
    world.put({**definition, "metadata": {"name": name}})
    world.server.establish()
    world.run("--preset", "rails")
    assert "annotations" not in world.made[f"CustomResourceDefinition {name}"]["metadata"]
    assert "NetworkAttachmentDefinition kube-rdma/rail-0" in world.made


def test_missing_rights_are_named_before_anything_is_written(world):
    world.server.forbidden = {("get", "daemonsets"), ("patch", "clusterroles")}
    error = world.refused()
    assert "DaemonSet kube-rdma/kube-rdma-agent: the API server forbids to get daemonsets" in error
    assert "ClusterRole kube-rdma-view: the API server forbids to patch clusterroles" in error
    assert not world.writes


def test_missing_rights_in_a_new_namespace_are_named_before_anything_is_written(world):
    world.server.forbidden = {("patch", "kube-rdma/serviceaccounts")}
    error = world.refused()
    assert "ServiceAccount kube-rdma/kube-rdma-agent: you may not patch it." in error
    assert not world.writes


def test_what_breaks_off_says_what_is_written_and_goes_on_later(world):
    """A right that the review does not know of, such as one that RBAC's escalation check asks."""
    world.server.escalating = {("patch", "kube-rdma/serviceaccounts")}
    error = world.refused()
    every = described().objects
    assert f" of {len(every)} objects are written, " in error
    assert "are not, from ServiceAccount kube-rdma/kube-rdma-agent on." in error
    assert "The same command again goes on." in error
    assert "the API server forbids to patch serviceaccounts kube-rdma/kube-rdma-agent" in error
    world.server.escalating = set()
    world.run()
    assert world.made.keys() == set(map(title, every))


def test_what_helm_keeps_is_helm_s(world):
    name = "sh.helm.release.v1.rdma.v1"
    labels = {"owner": "helm", "name": "rdma"}
    meta = {"name": name, "namespace": "kube-system", "labels": labels}
    world.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    error = world.refused()
    assert "release rdma: Helm has a record of it in namespace kube-system." in error
    assert "helm upgrade" in error
    assert not world.writes


def test_neighbours_and_nodes_without_an_agent_are_shown(world):
    world.server.put(DAEMON_SET, kit.shared())
    taint = {"key": "gpu", "value": "a", "effect": "NoSchedule"}
    world.server.put(NODE, {"metadata": {"name": "node-2"}, "spec": {"taints": [taint]}})
    outcome = world.run("--dry-run", "--set", "agent.tolerations[0].key=other")
    shown = sentences(outcome)
    assert "! DaemonSet kube-system/rdma-shared-dp-ds: it looks like a device plugin" in shown
    assert "kube-rdma migrate plan" in shown
    assert "! node-2: no agent runs on a node that has the taint gpu=a:NoSchedule" in shown
    assert "✓ 1 of 2 nodes get an agent." in shown
    assert outcome.exit_code == 0


def test_an_operator_of_nvidia_s_forbids_another(world):
    containers = [{"name": "operator", "image": "nvcr.io/nvidia/cloud-native/network-operator:v26"}]
    meta = {"name": "network-operator", "namespace": "default"}
    template = {"spec": {"containers": containers}}
    document = {"metadata": meta, "spec": {"template": template}, "status": {"readyReplicas": 1}}
    world.server.put(DEPLOYMENTS, document)
    assert "Take preset nvidia beside it" in world.refused("--preset", "nvidia-operator")
    outcome = world.run("--dry-run")
    assert "! Deployment default/network-operator: NVIDIA's network operator" in outcome.stdout


def test_an_old_cluster_gets_what_it_has_and_the_page_says_what_is_left_out(world):
    world.server.git_version = "v1.28.9-gke.100"
    outcome = world.run("--dry-run", "--set", "admission.install=true")
    shown = sentences(outcome)
    assert "has no ValidatingAdmissionPolicy, which comes with 1.30: left out." in shown
    assert "v1.28.9-gke.100 has no policies; it lacks ValidatingAdmissionPolicy" in shown
    assert "ValidatingAdmissionPolicy" not in counts(outcome)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--preset", "acs"), 'preset: "acs" is not a value of this field. Did you mean "ack"?'),
        (("--image", ""), "image.repository: no image of kube-rdma is named."),
        (("--image", "UP:1"), 'image.repository: "UP" is not a registry with'),
    ],
)
def test_wrong_words_are_refused_without_a_cluster(world, words, sentence):
    assert sentence in world.refused(*words)
    assert not world.server.lines


def test_a_cluster_that_does_not_answer_is_one_sentence(world):
    @asynccontextmanager
    async def cut_off(_):
        line = world.server.line()
        line.cut()
        yield Cluster(line)

    outcome = CliRunner().invoke(install, WORDS, obj=cut_off)
    assert isinstance(outcome.exception, Unavailable)
    assert str(outcome.exception) == (
        "The API server does not answer to get version: the network is cut."
    )


def test_the_image_is_tried_before_anything_is_written(world):
    """The fake has no kubelet, so the pod is refused."""
    world.server.forbidden = {("patch", "pods")}
    assert "forbids to patch pods default/kube-rdma-image-" in world.refused("--try-image")
    assert not world.made
