"""From where a cluster stands to commands: which start it is, and that every act can be undone."""

import json
import re
import shlex

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.migrate.rules import commands
from kube_rdma.migrate.rules.plan import plan
from kube_rdma.model import migrate
from tests.kit import device_plugins as kit
from tests.unit.migrate.rules.views import (
    CLUSTER_POLICY,
    OPERATOR,
    nodes,
    ours,
    plugin,
    starts,
    view,
)

IMAGE = "reg.example.com/kube-rdma:0.1.0"
ANY = migrate.MigrationOptions(image=IMAGE)
STARTS = starts()
OF_NODES = {"cordon": "uncordon", "uncordon": "cordon", "drain": "uncordon"}


def words(steps):
    """Every command, in words."""
    return [command for step in steps for command in step.commands]


def test_of_one_start_everything_in_order():
    """The whole plan, word for word, as a person sees it."""
    made = plan(STARTS["shared-plugin"], ANY)
    patch = (
        '\'{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null},"template":{"spec":'
        '{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":'
        '{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kube-rdma.io/agent","operator":'
        '"NotIn","values":["moving","on"]}]}]}}}}}}}\''
    )
    gone = "kubectl -n kube-system wait pod -l name=rdma-shared-dp-ds"
    offered = "kubectl wait node/node-1 --timeout=10m \\\n    --for=jsonpath="
    path = "'{.status.allocatable.rdma/hca_shared_devices_a}'"
    assert words(made.steps)[1:9] == [
        "kube-rdma render --preset scc --values kube-rdma-values.yaml | kubectl apply -f -",
        "kubectl -n kube-system patch daemonset rdma-shared-dp-ds --type=merge -p \\\n    " + patch,
        "kubectl cordon node-1",
        "kubectl label node node-1 kube-rdma.io/agent=moving --overwrite",
        f"{gone} --field-selector=spec.nodeName=node-1 \\\n    --for=delete --timeout=10m",
        f"{offered}{path}=0",
        "kubectl label node node-1 kube-rdma.io/agent=on --overwrite",
        f"{offered}{path}=12",
    ]
    assert made.steps[-1].node == "node-2"
    assert words(made.back)[-1].endswith(
        "--part workloads | kubectl delete --ignore-not-found -f -"
    )


@pytest.mark.parametrize("start", STARTS)
def test_each_start_is_recognized(start):
    made = plan(STARTS[start], ANY)
    assert made.source.start == start
    assert {step.node for step in made.steps if step.node} == {"node-1", "node-2"}


def test_nobody_patches_a_daemonset_that_a_policy_of_the_cluster_writes_back():
    """That would be undone, and by a name that is not there it would do harm."""
    made = plan(STARTS["nvidia-operator"], ANY)
    every = [*words(made.steps), *words(made.back)]
    assert not [one for one in every if "patch daemonset" in one]
    patches = [one for one in every if "patch nicclusterpolicy nic-cluster-policy" in one]
    assert [patch(one)["spec"]["rdmaSharedDevicePlugin"] is None for one in patches] == [
        True,
        False,
    ]


def test_a_policy_of_2020_lets_go_before_its_daemonset_is_patched():
    made = plan(STARTS["nvidia-operator-0.1"], ANY)
    acts = [one.split()[3:6] for one in words(made.steps) if " patch " in one]
    assert acts == [
        ["patch", "nicclusterpolicy", "example-nicclusterpolicy"],
        ["patch", "daemonset", "rdma-shared-dp-ds"],
    ]
    assert words(made.steps)[2].startswith(
        "kubectl -n mlnx-network-operator patch nicclusterpolicy"
    )


def test_a_node_policy_is_patched_as_what_it_is():
    document = kit.nvidia()
    document["metadata"]["ownerReferences"][0] |= {"kind": "NicNodePolicy", "name": "a"}
    policy = migrate.VendorPolicy("NicNodePolicy", "", "a", "rdmaSharedDevicePlugin", {})
    seen = replace(STARTS["nvidia-operator"], plugins=(plugin(document),), policies=(policy,))
    assert any("kubectl patch nicnodepolicy a " in one for one in words(plan(seen, ANY).steps))


def test_a_policy_without_a_running_operator_is_named():
    seen = STARTS["nvidia-operator"]
    assert not any("No Deployment" in note for note in plan(seen, ANY).notes)
    assert any("No Deployment" in note for note in plan(replace(seen, operators=()), ANY).notes)


def test_vke_s_pods_go_elsewhere_before_their_node_is_moved():
    """What its shares are called nobody knows, and its cards are not shared by all."""
    every = words(plan(STARTS["vke"], ANY).steps)
    assert "kubectl drain node-1 --ignore-daemonsets --delete-emptydir-data" in every
    assert "kubectl cordon node-1" not in every
    assert any(r"allocatable.vke\.volcengine\.com/rdma}'=0" in one for one in every)


def test_what_vke_s_component_leaves_is_out_of_the_way_while_nothing_serves_the_node():
    """After its pods are gone and before kube-rdma's agent comes; the way back puts it back."""

    def after(every, word):
        place = next(number for number, one in enumerate(every) if word in one)
        (before,) = [one for one in every[place - 4 : place] if "allocatable" in one]
        assert before.endswith("=0")
        return place, every

    there, every = after(words(plan(STARTS["vke"], ANY).steps), "kube-rdma network clear-vke")
    own = "kubectl -n kube-rdma-vke"  # debug pods of others are in other namespaces
    assert every[there].startswith(f"{own} debug node/node-1 ")
    assert every[there + 1].startswith(f"{own} get pods")
    assert every[there + 1].endswith(f"grep node-debugger-node-1 | xargs {own} delete")
    assert every[there + 2] == "kubectl label node node-1 kube-rdma.io/agent=on --overwrite"
    back, every = after(words(plan(STARTS["vke"], ANY).back), "clear-vke --undo")
    assert "network uninstall --records --host /host" in every[back - 1]
    assert not [one for one in words(plan(STARTS["ack"], ANY).steps) if "clear-vke" in one]


def test_two_plugins_are_taken_one_at_a_time():
    both = replace(
        STARTS["scc"], plugins=(plugin(kit.scc()), plugin(kit.ack()), plugin(kit.shared()))
    )
    with pytest.raises(Refused, match="3 device plugins serve RDMA cards: kube-system/rdma-dev"):
        plan(both, ANY)
    chosen = plan(both, migrate.MigrationOptions("kube-system/ack-rdma-dp-ds", IMAGE))
    assert chosen.source.start == "ack"
    with pytest.raises(Refused, match="there is no device plugin a/b"):
        plan(both, migrate.MigrationOptions("a/b", IMAGE))


def unknown_owner():
    document = kit.shared()
    owner = {"kind": "AddOn", "name": "rdma", "controller": True}
    document["metadata"]["ownerReferences"] = [owner]
    return document


@pytest.mark.parametrize(
    "document",
    [
        kit.daemon_set("net", "kube-sriov-device-plugin", {"app": "s"}, image="sriov-rdma:3"),
        kit.daemon_set("net", "rdma-device-plugin", {"app": "s"}),  # and no node offers VKE's
        kit.nvidia(),  # a policy that was not read
        unknown_owner(),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(document):
    meta = document["metadata"]
    with pytest.raises(Refused, match=rf"DaemonSet {meta['namespace']}/{meta['name']} \(image"):
        plan(migrate.MigrationView((plugin(document),), nodes=nodes("rdma/x", "4", "a")), ANY)


def test_plugins_of_other_devices_are_no_start():
    """A GPU's plugin beside kube-rdma's is no reason for anything."""
    gpu = plugin(kit.daemon_set("gpu", "nvidia-device-plugin", {"app": "gpu"}))
    made = plan(migrate.MigrationView((gpu, ours())), ANY)
    assert (made.source, made.steps, made.back) == (None, (), ())
    (note,) = made.notes
    assert note.startswith("kube-rdma serves the nodes already (kube-rdma/rdma-dev")
    with pytest.raises(Refused, match="gpu/nvidia-device-plugin"):
        plan(migrate.MigrationView((gpu,)), ANY)


def test_half_way_the_rest_is_moved_and_all_of_it_comes_back():
    """A node between the two offers nothing, so its number is that of the configuration."""
    (first, second) = nodes(kit.SHARED_RESOURCE, "12", "done", "open")
    stuck = migrate.MigratingNode("stuck", {kit.SHARED_RESOURCE: "0"}, "moving", unschedulable=True)
    seen = STARTS["shared-plugin"]
    held = replace(seen.plugins[0], spec=patched(seen.plugins[0].spec, seen.plugins[0]))
    made = plan(
        replace(seen, plugins=(held, ours()), nodes=(replace(first, mark="on"), second, stuck)), ANY
    )
    assert [step.node for step in made.steps if step.node] == ["open", "stuck"]
    assert [step.node for step in made.back if step.node] == ["done", "open", "stuck"]
    assert any("node/stuck" in one and one.endswith("=12") for one in words(made.steps))
    strategy = patch(next(one for one in words(made.back) if "patch" in one))["spec"]
    assert strategy["updateStrategy"] == {"type": "RollingUpdate"}
    assert strategy["template"]["spec"]["affinity"] is None


def test_pods_that_hold_shares_are_told_and_others_are_not():
    seen = replace(
        STARTS["ack"],
        holders=(
            migrate.HolderPod("default", "a", "node-1", ("rdma/hca",)),
            migrate.HolderPod("default", "b", "node-1", ("nvidia.com/gpu",)),
            migrate.HolderPod("default", "c", "elsewhere", ("rdma/hca",)),
        ),
    )
    assert [one.title for one in plan(seen, ANY).holders] == ["default/a"]


def test_nodes_that_offer_none_of_the_shares_are_named():
    seen = STARTS["ack"]
    made = plan(replace(seen, nodes=(*seen.nodes, *nodes("nvidia.com/gpu", "8", "gpu-1"))), ANY)
    assert [note for note in made.notes if note.endswith("are left alone: gpu-1")]


def test_without_shares_there_is_no_plan():
    seen = replace(STARTS["ack"], nodes=nodes("rdma/hca", "0", "a"))
    with pytest.raises(Refused, match="no node offers rdma/hca"):
        plan(seen, ANY)
    config = migrate.PluginConfig("", {"rdma/x": 1})
    other = view(kit.shared(), "rdma/x", "1")
    with pytest.raises(Refused, match="reads ConfigMap kube-system/rdma-devices, which is not"):
        plan(other, ANY)
    assert plan(replace(other, configs={"kube-system/rdma-devices": config}), ANY).steps


@pytest.mark.parametrize(
    ("image", "repository", "tag"),
    [("r:5000/a/kube-rdma", "r:5000/a/kube-rdma", None), ("r/a:1.0", "r/a", "1.0")],
)
def test_an_image_has_its_place_in_the_values(image, repository, tag):
    first = words(plan(STARTS["ack"], migrate.MigrationOptions(image=image)).steps)[0]
    values = yaml.safe_load(first.partition("\n")[2].removesuffix("VALUES"))
    assert values["image"] == {"repository": repository} | ({"tag": tag} if tag else {})
    assert values["agent"]["nodeSelector"] == {"kube-rdma.io/agent": "on"}


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30) | st.builds(
    "\n".join, st.lists(st.sampled_from(["", " a", "b: {", "\tc", "VALUES", "#", "d "]), max_size=6)
)


@settings(max_examples=40)
@given(texts)
def test_any_text_is_written_as_yaml_and_read_back(text):
    written = commands.yaml({"agent": {"config": text, "a.b/c": "x"}})
    assert yaml.safe_load(written) == {"agent": {"config": text, "a.b/c": "x"}}
    assert "VALUES" not in written.splitlines()


def patch(command):
    """The document of a patch's command."""
    return json.loads(shlex.split(command)[-1])


def merged(document, change):
    """RFC 7396."""
    if not isinstance(change, dict):
        return change
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patched(spec, seen):
    """A DaemonSet's spec after the plan's patch."""
    return merged({"spec": spec}, patch(commands.held_off(seen)))["spec"]


expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "b"]),
        "operator": st.just("In"),
        "values": st.lists(st.text("xy", max_size=2), min_size=1, max_size=2),
    }
)
terms = st.fixed_dictionaries(
    {"matchExpressions": st.lists(expressions, min_size=1, max_size=2)},
    optional={"matchFields": st.lists(expressions, min_size=1, max_size=1)},
)
required = st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms, min_size=1, max_size=2)})
affinities = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "podAffinity": st.just({"x": 1}),
        "nodeAffinity": st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": required,
                "preferredDuringSchedulingIgnoredDuringExecution": st.just([{"weight": 1}]),
            },
        ).filter(bool),
    },
).filter(bool)
strategies = st.sampled_from(
    [{"type": "OnDelete"}, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}]
)


@settings(max_examples=40)
@given(affinities, strategies)
def test_what_a_daemonset_was_it_is_again(affinity, strategy):
    """Also by a plan that was made half-way, which cannot know the strategy of before."""
    spec = kit.shared()["spec"] | {"updateStrategy": strategy}
    if affinity is not None:
        spec["template"]["spec"]["affinity"] = affinity
    seen = plugin(kit.shared() | {"spec": spec})
    between = patched(spec, seen)
    assert merged({"spec": between}, patch(commands.let_in_again(seen)))["spec"] == spec
    half = replace(seen, spec=between)
    assert patched(between, half) == between
    again = merged({"spec": between}, patch(commands.let_in_again(half)))["spec"]
    assert again["template"] == spec["template"]


@st.composite
def clusters(draw):
    """A start with other nodes: any names, numbers and labels."""
    seen = draw(st.sampled_from(list(STARTS.values())))
    resource = next(iter(seen.nodes[0].offered))
    names = draw(
        st.lists(st.from_regex(r"[a-z]{2,5}-[0-9]", fullmatch=True), min_size=1, unique=True)
    )
    some = tuple(
        migrate.MigratingNode(
            name,
            {resource: draw(st.sampled_from(["1", "12", "1k", "0"]))},
            draw(st.sampled_from(["", "on", "moving"])),
            draw(st.booleans()),
        )
        for name in names
    )
    return replace(seen, nodes=some, operators=(OPERATOR,) if draw(st.booleans()) else ())


def acts(steps):
    """What commands change, as pairs of act and object; waits and files change nothing."""
    for command in words(steps):
        parts = shlex.split(command.replace("\\\n", " "))
        if "render" in parts and parts[-3:] == ["apply", "-f", "-"]:
            yield "install", "kube-rdma"
        elif "render" in parts and "delete" in parts:
            yield "remove", "kube-rdma"
        elif parts[:1] == ["kubectl"] and parts[1] in OF_NODES:
            yield from ((parts[1], name) for name in parts[2:] if not name.startswith("-"))
        elif parts[:3] == ["kubectl", "label", "node"]:
            names = [one for one in parts[3:] if "/" not in one and not one.startswith("--")]
            value = next(one for one in parts if one.startswith(commands.MARK))
            yield from (("label" if "=" in value else "unlabel", name) for name in names)
        elif "patch" in parts:
            kind, name = parts[parts.index("patch") + 1 :][:2]
            yield "patch", f"{kind}/{name}"


UNDONE = {"install": "remove", "label": "unlabel", "patch": "patch"}


@settings(max_examples=40)
@given(clusters())
def test_every_act_has_its_answer_in_the_way_back(seen):
    """And a node that took pods takes them at the end of each step, by whatever way."""
    try:
        made = plan(seen, ANY)
    except Refused:
        assert all(set(node.offered.values()) == {"0"} for node in seen.nodes)
        return
    there, back = set(acts(made.steps)), set(acts(made.back))
    for act, thing in there:
        if act in UNDONE:
            assert (UNDONE[act], thing) in back
    for step in (*made.steps, *made.back):
        done = list(acts([step]))
        closed = {name for act, name in done if act in {"cordon", "drain"}}
        opened = {name for act, name in done if act == "uncordon"}
        before = {node.name for node in seen.nodes if not node.unschedulable}
        assert opened == closed & before


@settings(max_examples=40)
@given(clusters())
def test_a_plan_names_nothing_that_was_not_read(seen):
    """Of the cluster's objects; its own namespace and DaemonSet are those of the installation."""
    try:
        made = plan(seen, ANY)
    except Refused:
        return
    (origin,) = seen.plugins
    names = {node.name for node in seen.nodes}
    spaces = {origin.namespace, "kube-rdma", "kube-rdma-vke"}
    policies = {f"{one.kind.lower()}/{one.name}" for one in seen.policies}
    for command in (*words(made.steps), *words(made.back)):
        assert set(re.findall(r"kubectl -n (\S+)", command)) <= spaces
        assert set(re.findall(r"node[/=]([a-z]{2,5}-[0-9])", command)) <= names
        assert set(re.findall(r"nodeName=(\S+?)[ )\\\n]", command)) <= names
    for act, thing in (*acts(made.steps), *acts(made.back)):
        if act == "patch":
            assert thing in {f"daemonset/{origin.name}", *policies}
        elif act in {"label", "unlabel", *OF_NODES}:
            assert thing in names


def test_the_policy_that_is_read_is_the_one_that_owns_the_plugin():
    """Another one of the same name elsewhere is none of its business."""
    other = replace(CLUSTER_POLICY, namespace="elsewhere")
    seen = replace(STARTS["nvidia-operator"], policies=(other, CLUSTER_POLICY))
    assert plan(seen, ANY).source.policy == CLUSTER_POLICY


def test_a_daemonset_without_a_ready_pod_is_passed_over():
    """Whoever may create one in any namespace needs no running pod to look like a plugin."""
    real = STARTS["shared-plugin"]
    (plugin_,) = real.plugins
    idle = replace(plugin_, namespace="tenant", ready=0)
    made = plan(replace(real, plugins=(plugin_, idle)), ANY)
    assert made.source.plugin == plugin_
    assert [note for note in made.notes if "tenant/rdma-shared-dp-ds has no ready pod" in note]
    with pytest.raises(Refused, match=r"no pod of DaemonSet tenant/.* is ready.*--daemonset"):
        plan(replace(real, plugins=(idle,)), ANY)
    configs = {"tenant/rdma-devices": real.configs["kube-system/rdma-devices"]}
    named = replace(real, plugins=(plugin_, idle), configs=configs)
    assert plan(named, replace(ANY, daemonset="tenant/rdma-shared-dp-ds")).source.plugin == idle
    assert plan(replace(real, plugins=(ours(), idle)), ANY).source is None
