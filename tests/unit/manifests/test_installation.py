"""One description of an installation: examples, config and the chart are what it says."""

import json
from pathlib import Path

import pytest
import yaml

from kube_base.frozen import replace
from kube_rdma.cli.render import PARTS
from kube_rdma.install.documents.installation import schema
from kube_rdma.install.installation import assignment, blueprints
from kube_rdma.install.rules.parts import filled
from kube_rdma.install.rules.presets import DEFAULTS, DISTRIBUTIONS, PRESETS, merged
from kube_rdma.install.rules.release import GROUP
from kube_rdma.lib.text import reader
from kube_rdma.reports.cluster import GUARD
from kube_rdma_lab.build.product import IMAGE
from kube_rdma_lab.installation import objects
from kube_rdma_tools.chart import chart_files, config_files
from tests.kit.policies import NFD_RIGHT
from tests.unit.manifests.test_manifests import QUOTA, patched

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/kube-rdma"
EXAMPLES = {
    "default": ("nics/agent.yaml", "nics/controller.yaml"),
    "rails": ("gpu-rails/agent.yaml", "gpu-rails/controller.yaml", "gpu-rails/networks.yaml"),
    "rdma-ib": ("rdma-ib/agent.yaml", "rdma-ib/controller.yaml"),
    "efa": ("efa/agent.yaml",),
    "ack": ("s0-ack/config.yaml", "s0-ack/daemonset.yaml"),
    "vke": ("s1-vke/daemonset.yaml", "s1-vke/controller.yaml"),
    "scc": ("s2-scc/config.yaml", "s2-scc/daemonset-preset.yaml"),
    "nvidia": ("s3-network/agent.yaml", "s3-network/controller.yaml"),
    "nvidia-operator": ("s3-network/operator.yaml",),
    "ib": ("s4-infiniband/agent.yaml", "s4-infiniband/controller.yaml"),
}
# Which an example's README has people apply from config.
BESIDE = {"CustomResourceDefinition"}
# Roles that nobody has yet.
FOR_PEOPLE = (
    *("kube-rdma-view", "kube-rdma-verify", "kube-rdma-bandwidth-check"),
    *("kube-rdma-aggregate-to-view", "kube-rdma-aggregate-to-edit"),
)
OF_AGENTS = ("kube-rdma-doctor",)  # Roles of their namespace
OPTIONAL = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def named(listed):
    """Objects by kind, namespace and name; none is there twice."""
    listed = list(listed)
    by_name = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
        for each in listed
    }
    assert len(by_name) == len(listed)
    return by_name


def without_recommended(node):
    """Objects without the labels that Kubernetes recommends, which examples leave out."""
    if isinstance(node, list):
        return [without_recommended(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: without_recommended(value) for key, value in node.items()}
    if isinstance(node.get("labels"), dict):
        made["labels"] = {key: value for key, value in node["labels"].items() if GROUP not in key}
    return {key: value for key, value in made.items() if key != "labels" or value}


def documents(*paths):
    return [each for path in paths for each in yaml.load_all(path.read_text(), yaml.CSafeLoader)]


@pytest.mark.parametrize("preset", PRESETS)
def test_an_example_is_what_its_preset_prints(preset):
    printed = named(without_recommended(list(objects((), preset))))
    listed = documents(*(ROOT / "examples" / name for name in EXAMPLES[preset]))
    # Addresses are an example's own: a preset invents none.
    example = named(each for each in listed if each["kind"] != "IPPool")
    assert example.items() <= printed.items()
    more = printed.keys() - example.keys()
    further = {kind for kind, _, name in more if not name.endswith(FOR_PEOPLE + OF_AGENTS)}
    assert further <= BESIDE | OPTIONAL


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_applied_from_config_is_what_a_preset_prints(preset):
    folders = ("crds", "operator", "foreign")
    files = named(
        documents(*(path for each in folders for path in (ROOT / "config" / each).iterdir()))
    )
    printed = named(without_recommended(list(objects((), preset))))
    beside = {name: each for name, each in printed.items() if name[0] in BESIDE}
    assert beside.items() <= files.items()


def test_config_is_what_tools_chart_writes():
    files = config_files()
    assert {name: (ROOT / "config" / name).read_text() for name in files} == files


def narrows(made, verb, group, resource):
    """The accounts that the objects give a right to for the whole cluster."""
    roles = {
        each["metadata"]["name"]
        for each in made
        if each["kind"] == "ClusterRole"
        for rule in each["rules"]
        if verb in rule["verbs"] and resource in rule["resources"] and group in rule["apiGroups"]
    }
    return {
        f"system:serviceaccount:{one['namespace']}:{one['name']}"
        for each in made
        if each["kind"] == "ClusterRoleBinding" and each["roleRef"]["name"] in roles
        for one in each["subjects"]
    }


def held(made, resource):
    """The accounts that a policy in force holds where they update a resource."""
    bound = {
        each["spec"]["policyName"]
        for each in made
        if each["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    return {
        text
        for each in made
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] in bound
        for rule in each["spec"]["matchConstraints"]["resourceRules"]
        if resource in rule["resources"] and "UPDATE" in rule["operations"]
        for condition in each["spec"].get("matchConditions", ())
        for text in condition["expression"].split("'")
        if text.startswith("system:serviceaccount:")
    }


@pytest.mark.parametrize("namespace", [{}, {"name": "elsewhere", "create": False}])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("group", "resource"), [("", "pods"), ("", "nodes"), ("", "nodes/status")])
def test_whoever_may_patch_pods_and_nodes_is_held_by_a_policy_of_the_same_release(
    preset, namespace, group, resource
):
    """An operator's agents too, although a policy deploys them later."""
    layers = [assignment(f"namespace.{key}={value}") for key, value in namespace.items()]
    made = objects(layers, preset)
    assert narrows(made, "patch", group, resource) <= held(made, resource)


def test_two_releases_share_no_policy_for_agents():
    """Uninstalling the one leaves the agents of the other as they were held."""
    names = [
        {each["metadata"]["name"] for each in objects((), preset) if GUARD in str(each)}
        for preset in ("vke", "nvidia")
    ]
    assert all(names)
    assert not set.intersection(*names)


def test_status_looks_for_the_policy_that_an_installation_has():
    for own in ("", "rdma-a"):
        made = objects([assignment(f"fullnameOverride='{own}'")], "vke")
        names = {each["metadata"]["name"] for each in made if GUARD in str(each)}
        assert names == {f"kube-rdma-vke.{own}{own and '.'}{GUARD}"}


def labelling(made):
    """What agents are told of labels, who may write those of others, and what is mounted for it."""
    pods = [each["spec"]["template"]["spec"] for each in made if each["kind"] == "DaemonSet"]
    words = {
        word.partition("=")[2]
        for pod in pods
        for word in pod["containers"][0]["args"]
        if word.startswith("--node-labels=")
    }
    mounted = any(each["name"] == "os-release" for pod in pods for each in pod["volumes"])
    return words, bool(narrows(made, *NFD_RIGHT)), mounted


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("default", {"write"}),
        ("rails", {"write"}),
        ("rdma-ib", {"write"}),
        ("efa", set()),
        ("ack", set()),
        ("scc", set()),
        ("vke", {"write"}),
        ("ib", {"write"}),
        ("nvidia", {"leave"}),
        ("nvidia-operator", set()),
    ],
)
def test_no_preset_writes_labels_by_which_others_start_drivers(preset, words):
    """Nor may its agents. An agent without networks has no role that writes labels."""
    assert labelling(objects((), preset)) == (words, False, False)


@pytest.mark.parametrize("preset", ["default", "vke", "ib", "nvidia"])
@pytest.mark.parametrize("value", ["write", "write-nfd", "leave", "remove"])
def test_whoever_installs_says_which_labels_are_written(preset, value):
    """And only who wants those of others gives the right to write them."""
    made = objects([assignment(f"agent.nodeLabels={value}")], preset)
    wanted = value == "write-nfd"
    assert labelling(made) == ({value}, wanted, wanted)


def test_without_a_preset_it_is_the_default_one():
    """For `render`; the chart's values say the same."""
    assert objects(()) == objects((), "default")
    values = reader.read((CHART / "values.yaml").read_bytes(), "values.yaml")
    assert values.value["preset"] == "default"


def test_labels_yaml_writes_what_seed_s3_s_daemonsets_select():
    made = documents(ROOT / "examples/s3-network/labels.yaml")
    assert labelling(made) == ({"write-nfd"}, True, True)


ISOLATED = "--namespace-isolation="


def isolation(preset, *layers):
    """The namespaces beside a pod's own from which it may name networks, as agents are told."""
    return [
        word.removeprefix(ISOLATED)
        for each in objects(layers, preset)
        if each["kind"] == "DaemonSet"
        for word in each["spec"]["template"]["spec"]["containers"][0]["args"]
        if word.startswith(ISOLATED)
    ]


def test_one_preset_keeps_networks_to_their_namespaces():
    """The others do as their documents' Multus, which asks for nothing of the kind."""
    told = {preset: isolation(preset) for preset in PRESETS}
    assert told.pop("ib") == ["default,kube-system"]
    assert len(told) == 9
    assert not any(told.values())


@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia", "ib"])
def test_whoever_installs_says_whose_networks_a_pod_may_name(preset):
    """Where the agent attaches networks; an empty value is Multus' default again."""
    for value, words in (("shared", ["shared"]), ("", [])):
        assert isolation(preset, assignment(f"agent.namespaceIsolation='{value}'")) == words


def rules_of(made, name):
    """The rules of a role, as pairs of a resource and a verb."""
    (role,) = [each for each in made if each["metadata"]["name"] == name and "rules" in each]
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia", "nvidia-operator", "ib"])
def test_roles_for_people_are_called_as_documents_call_them(preset):
    """Whatever the namespace; a second release leaves them out."""
    made = {(each["kind"], each["metadata"]["name"]) for each in objects((), preset)}
    wanted = {("ClusterRole", name) for name in FOR_PEOPLE}
    assert wanted <= made
    second = objects([assignment("roles.install=false")], preset)
    assert not wanted & {(each["kind"], each["metadata"]["name"]) for each in second}


def test_whoever_does_checks_may_not_write_them():
    """The controller needs pods, commands in them and their claims; people write checks too."""
    made = objects((), "vke")
    checks, verify = (rules_of(made, f"kube-rdma-{name}") for name in ("bandwidth-check", "verify"))
    assert checks < verify
    read = {"resourceclaims", "resourceclaimtemplates"}
    assert {resource for resource, _ in checks} == {"pods", "pods/exec"} | read
    assert {verb for resource, verb in checks if resource in read} == {"get"}


POLICIES = "nicclusterpolicies.mellanox.com"


@pytest.mark.parametrize("scope", ["Namespaced", "Cluster"])
def test_definition_rights_and_program_have_the_scope_of_policies_that_is_asked_for(scope):
    layers = [assignment(f"controller.policyScope={scope}")]
    made = objects(layers, "nvidia-operator")
    (definition,) = (one for one in made if one["metadata"]["name"] == POLICIES)
    assert definition["spec"]["scope"] == scope
    writers = {
        one["kind"]
        for one in made
        for rule in one.get("rules", ())
        if "nicclusterpolicies/status" in rule.get("resources", ())
    }
    assert writers == {"Role" if scope == "Namespaced" else "ClusterRole"}
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("--policies=Cluster" if scope == "Cluster" else "--policies") in args


def test_a_definition_of_policies_that_another_release_left_can_stay():
    made = objects([assignment("crds.nicClusterPolicies=false")], "nvidia-operator")
    names = {one["metadata"]["name"] for one in made}
    assert POLICIES not in names
    assert "ippools.kube-rdma.io" in names


def test_an_operator_has_no_name_of_another_operator_s_in_the_cluster():
    """Applying it never overwrites NVIDIA's rights; the document's name is there for who asks."""
    names = {each["metadata"]["name"] for each in objects((), "nvidia-operator")}
    assert "network-operator" not in names
    assert "kube-rdma-operator" in names
    asked = objects([assignment("controller.name=network-operator")], "nvidia-operator")
    assert ("Deployment", "network-operator") in {
        (each["kind"], each["metadata"]["name"]) for each in asked
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_no_agent_may_delete_anything(preset):
    """Not even blocks, which only the controller takes away."""
    verbs = {
        verb
        for each in objects((), preset)
        if each["kind"] in ("Role", "ClusterRole") and "agent" in each["metadata"]["name"]
        for rule in each["rules"]
        for verb in rule["verbs"]
    }
    assert not {"delete", "deletecollection", "*"} & verbs


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia", "nvidia-operator", "ib"])
def test_a_drain_takes_copies_of_the_controller_by_turns(preset, replicas):
    """And the only copy too, for nobody would ever drain its node else."""
    made = objects([assignment(f"controller.replicas={replicas}")], preset)
    (deployment,) = [each for each in made if each["kind"] == "Deployment"]
    (budget,) = [each for each in made if each["kind"] == "PodDisruptionBudget"]
    assert deployment["spec"]["replicas"] == replicas
    assert budget["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": deployment["spec"]["selector"]}
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == deployment["spec"]["selector"]


@pytest.mark.parametrize("preset", PRESETS)
def test_an_installation_of_anybody_s_has_two_controllers_or_none(preset):
    deployments = [each for each in objects((), preset) if each["kind"] == "Deployment"]
    assert [each["spec"]["replicas"] for each in deployments] in ([], [2])


def test_another_project_s_definition_is_the_file_and_only_on_demand():
    (definition,) = documents(*(ROOT / "config/foreign").iterdir())
    crds = {"install": False, "networkAttachmentDefinitions": True}
    made = list(filled(blueprints()["definitions"], merged({"preset": "vke", "crds": crds})))
    assert without_recommended(made) == [definition]
    assert definition not in without_recommended(list(objects((), "vke")))


@pytest.mark.parametrize(
    "distribution", [name for name, layer in DISTRIBUTIONS.items() if "host" in layer]
)
@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia", "ib"])
def test_a_distribution_is_its_patch(preset, distribution):
    """That of config/distributions, which one applies to an example by hand."""
    values = merged({"preset": preset, "distribution": distribution})
    made = [each for part in blueprints().values() for each in filled(part, values)]
    (agent,) = [each for each in made if each["kind"] == "DaemonSet"]
    spec = agent["spec"]["template"]["spec"]
    mounts = {(each["name"], each["mountPath"]) for each in spec["containers"][0]["volumeMounts"]}
    paths = {
        each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each
    }
    assert (mounts, paths) == patched(EXAMPLES[preset][0], distribution)


def test_gke_gets_its_quota_where_the_namespace_is_ours():
    (file,) = documents(ROOT / "config/distributions" / QUOTA)
    for preset in PRESETS:
        values = merged({"preset": preset, "distribution": "gke"})
        quotas = [
            each
            for each in filled(blueprints()["namespace"], values)
            if "hard" in each.get("spec", {})
        ]
        assert [each["spec"] for each in quotas] == [file["spec"]] * values["namespace"]["create"]


def security(preset, **given):
    """The security contexts of the containers of agents."""
    made = list(filled(blueprints()["workloads"], merged({"preset": preset, **given})))
    agents = pods(each for each in made if each["kind"] == "DaemonSet")
    return [one["securityContext"] for pod in agents.values() for one in pod["containers"]]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "nvidia-operator"])
def test_agents_name_a_type_that_the_policy_of_the_distribution_has(preset, distribution):
    (made,) = security(preset, distribution=distribution)
    alone = preset in ("efa", "ack", "scc")
    narrow = alone and distribution not in ("bottlerocket", "flatcar", "talos")
    wanted = "container_device_plugin_t" if narrow else "spc_t"
    assert made["seLinuxOptions"] == {"type": wanted}
    (own,) = security(preset, distribution=distribution, agent={"seLinuxType": "own_t"})
    assert own["seLinuxOptions"] == {"type": "own_t"}


@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia", "ib"])
def test_cdi_files_are_written_where_the_runtime_looks(preset):
    """The agent has the folder where its default is."""
    made = with_hooks(preset, host={"cdi": "/var/cdi/dynamic"})
    (agent,) = (
        pod
        for pod in pods(made).values()
        if any(volume["name"] == "cdi" for volume in pod.get("volumes", ()))
    )
    (volume,) = (one for one in agent["volumes"] if one["name"] == "cdi")
    (mount,) = (one for one in agent["containers"][0]["volumeMounts"] if one["name"] == "cdi")
    assert (volume["hostPath"]["path"], mount["mountPath"]) == ("/var/cdi/dynamic", "/var/run/cdi")


PLACED = {
    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    "nodeSelector": {"pool": "system"},
    "affinity": {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [1]},
    },
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"team": "network", "name": "mine"},
    "podAnnotations": {"a": "b"},
    "extraArgs": ["--admission-set=vepfsFolders=/data"],
}


@pytest.mark.parametrize("preset", ["default", "rails", "vke", "nvidia", "nvidia-operator", "ib"])
def test_whoever_installs_says_where_controllers_and_hooks_run(preset):
    """Hooks run on the nodes that take a controller, wherever its copies are."""
    (deployment,) = [
        each
        for each in with_hooks(preset, controller=PLACED, image={"architectures": ["arm64"]})
        if each["kind"] == "Deployment"
    ]
    template = deployment["spec"]["template"]
    assert template["spec"]["affinity"] == PLACED["affinity"]
    assert template["spec"]["priorityClassName"] == "system-cluster-critical"
    assert template["metadata"]["annotations"] == {"a": "b"}
    own = deployment["spec"]["selector"]["matchLabels"]
    assert without_recommended(template)["metadata"]["labels"] == {"team": "network"} | own
    assert template["spec"]["containers"][0]["args"][-1:] == PLACED["extraArgs"]
    jobs = [each for each in with_hooks(preset, controller=PLACED) if each["kind"] == "Job"]
    assert jobs
    for job in jobs:
        metadata = job["spec"]["template"]["metadata"]
        assert metadata["annotations"] == {"a": "b"}
        assert metadata["labels"]["team"] == "network"
        assert metadata["labels"]["name"] == job["metadata"]["name"]
    for pod in (template["spec"], *pods(jobs).values()):
        assert pod["priorityClassName"] == "system-cluster-critical"
        assert pod["tolerations"] == PLACED["tolerations"]
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
        assert pod["affinity"]["nodeAffinity"] == PLACED["affinity"]["nodeAffinity"]
    assert not any("podAntiAffinity" in pod["affinity"] for pod in pods(jobs).values())


@pytest.mark.parametrize("preset", ["ack", "scc", "vke", "nvidia", "ib"])
def test_agents_have_further_labels_annotations_and_options(preset):
    named_too = {"a": "b", "name": "c", "app.kubernetes.io/name": "d"}
    further = {"podLabels": named_too, "podAnnotations": {"d": "e"}}
    layer = {"agent": further | {"extraArgs": ["--registry=plugins_registry"]}}
    made = objects([reader.read(json.dumps(layer).encode(), "values")], preset)
    (agent,) = [each for each in made if each["kind"] == "DaemonSet"]
    template = agent["spec"]["template"]
    own = agent["spec"]["selector"]["matchLabels"]
    assert template["metadata"]["labels"][f"{GROUP}name"] == "kube-rdma"
    plain = without_recommended(template)["metadata"]
    assert plain == {"labels": {"a": "b"} | own, "annotations": {"d": "e"}}
    assert template["spec"]["containers"][0]["args"][-1] == "--registry=plugins_registry"


@pytest.mark.parametrize("preset", PRESETS)
def test_no_pod_is_on_a_node_of_another_architecture_than_the_image_has(preset):
    """Whichever pod it is; by default the image is for both."""
    wanted = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    made = pods(with_hooks(preset, image={"architectures": ["amd64"]}))
    assert made
    for pod in made.values():
        rule = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = rule["nodeSelectorTerms"]
        assert wanted in term["matchExpressions"]


def pods(made):
    """The pods of all workloads, by their name."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in made
        if "template" in each.get("spec", {})
    }


def with_hooks(preset, **given):
    """All objects of an installation, those that only Helm has too."""
    values = merged({"preset": preset, **given})
    listed = [one for part in blueprints().values() for one in part]
    return list(filled([replace(one, for_helm=False) for one in listed], values))


def test_the_chart_is_what_tools_chart_writes():
    files = chart_files()
    assert {name: (CHART / name).read_text() for name in files} == files
    by_hand = {"Chart.yaml", "templates/NOTES.txt", "templates/checks.yaml"}
    present = {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()}
    assert present == files.keys() | by_hand


def test_every_part_can_be_asked_for():
    printed = [
        name for name, listed in blueprints().items() if not all(each.for_helm for each in listed)
    ]
    assert tuple(printed) == PARTS


def fields(node, parts):
    """Every field of a schema of ours, as a.b; what Kubernetes or docs/ip.md has stops there."""
    node = parts[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    for name, inner in node.get("properties", {}).items():
        yield name
        if name not in ("pools", "global"):
            yield from (f"{name}.{below}" for below in fields(inner, parts))


def test_values_yaml_tells_every_value():
    """Each with everybody's default, or null where a preset or a distribution decides it."""
    values = yaml.load((CHART / "values.yaml").read_text(), yaml.CSafeLoader)
    made = json.loads(schema({}, ()))
    expected = set(fields(made, made["$defs"])) - {"global"}
    assert expected - {"image.pullSecrets.name"} <= set(paths(values))
    layers = [*PRESETS.values(), *DISTRIBUTIONS.values()]
    decided = {path for layer in layers for path in paths(layer) if not path.startswith("platform")}
    for path in expected - {"image.pullSecrets.name", "preset"}:
        default, value = DEFAULTS, values
        for name in path.split("."):
            default, value = default[name], value[name]
        assert isinstance(value, dict) or value == (None if path in decided else default)


@pytest.mark.parametrize("preset", PRESETS)
def test_values_yaml_with_a_preset_is_the_preset(preset):
    """Whoever begins with a copy of the file has changed nothing."""
    values = reader.read((CHART / "values.yaml").read_text().encode(), "values.yaml")
    image = assignment(f"image.repository={IMAGE}")  # which the file leaves to whoever installs
    assert objects([values, image], preset) == objects((), preset)


def agent_resources(*texts):
    made = objects([reader.read(text.encode(), "values.yaml") for text in texts], "ack")
    (agent,) = [each for each in made if each["kind"] == "DaemonSet"]
    return agent["spec"]["template"]["spec"]["containers"][0]["resources"]


def test_null_is_left_out_and_inside_of_resources_it_takes_a_default_away():
    """As Helm has it: a later file of values may take back what an earlier one says."""
    usual = agent_resources()
    assert agent_resources("agent: null") == usual
    assert agent_resources("agent: {resources: null, tolerations: null}") == usual
    limits = {name: value for name, value in usual.items() if name != "limits"}
    raised = "agent: {resources: {limits: {memory: 1Gi}}}"
    assert agent_resources("agent: {resources: {limits: null}}") == limits
    assert agent_resources(raised, "agent: {resources: {limits: null}}") == limits
    assert agent_resources(raised, "agent: {resources: null}") == usual


def paths(values, path=""):
    for name, value in values.items():
        yield f"{path}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{path}{name}.")
