"""What an installation does to each object, and findings; tests of cli/install have the rest."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.install import installation
from kube_rdma.install.rules.plan import install_plan, title
from kube_rdma.install.rules.release import image_values, others, owned, tolerated
from kube_rdma.model.install import Act, ClusterObject, InstallSight
from kube_rdma.model.kubernetes import NodeState, Taint
from kube_rdma.model.migrate import PluginDaemonSet

RELEASE = installation.release(
    installation.layers((), (), image="registry.example.com/rdma/kube-rdma"), "", "v1.36.3", None
)
SERVERS = {"resourceVersion": "7", "managedFields": [{"manager": "helm"}], "generation": 3}


def stored(wanted, **more):
    """An object as the API server has it."""
    return {**wanted, "metadata": {**wanted["metadata"], **SERVERS}, **more}


def as_found(wanted, state):
    match state:
        case "missing":
            return ClusterObject(wanted)
        case "same":
            newer = stored(wanted)
            newer["metadata"]["resourceVersion"] = "8"
            return ClusterObject(wanted, stored(wanted), newer)
        case "other":
            return ClusterObject(wanted, stored(wanted, spec={"old": True}), stored(wanted))
        case "foreign":
            return ClusterObject(wanted, stored(wanted), owner="kubectl made it")
        case "refused":
            return ClusterObject(wanted, refusal=Refused("no", remedy="Do"))


STATES = ("missing", "same", "other", "foreign", "refused")
states = st.lists(
    st.sampled_from(STATES), min_size=len(RELEASE.objects), max_size=len(RELEASE.objects)
)


def planned(sight=None, **parts):
    return install_plan(sight or InstallSight(RELEASE, "v1.36.3", (), **parts))


@given(states)
def test_each_object_is_made_changed_left_or_named_as_an_obstacle(each):
    pairs = list(zip(RELEASE.objects, each, strict=True))
    sight = InstallSight(RELEASE, "v1.36.3", tuple(as_found(*pair) for pair in pairs))
    plan = planned(sight)
    acts = {"missing": Act.MADE, "same": Act.LEFT, "other": Act.CHANGED}
    assert plan.acts == tuple((acts[state], one) for one, state in pairs if state in acts)
    assert plan.wanted == tuple(one for one, state in pairs if state in ("missing", "other"))
    errors = [finding.subject for finding in plan.findings if finding.is_error]
    assert errors == [title(one) for one, state in pairs if state not in acts]


@given(st.integers(0, 30), st.integers(0, 30))
def test_each_node_gets_an_agent_or_its_reason_is_said(free, tainted):
    taints = (Taint("a", "NoSchedule", "b"),)
    nodes = [NodeState(f"free-{number}") for number in range(free)]
    nodes += [NodeState(f"kept-{number}", taints=taints) for number in range(tainted)]
    bears = tolerated({"key": "other", "tolerationSeconds": 5, "effect": None})
    release = replace(RELEASE, chosen=replace(RELEASE.chosen, tolerations=(bears,)))
    plan = planned(InstallSight(release, "v1.36.3", (), nodes=tuple(nodes)))
    assert plan.served == free
    said = [one for one in plan.findings if "no agent runs on" in one.problem]
    assert bool(said) is bool(tainted)
    assert all("has the taint a=b:NoSchedule" in one.problem for one in said)


def test_usual_agents_bear_every_taint():
    taints = (Taint("a", "NoExecute", "b"),)
    assert planned(nodes=(NodeState("node-1", taints=taints),)).served == 1


def test_reasons_without_end_are_shown_in_part():
    nodes = tuple(NodeState(f"n{n}", taints=(Taint(f"t{n}", "NoSchedule"),)) for n in range(100))
    release = replace(RELEASE, chosen=replace(RELEASE.chosen, tolerations=()))
    plan = planned(InstallSight(release, "v1.36.3", (), nodes=nodes))
    assert sum("no agent runs on" in one.problem for one in plan.findings) == 5
    assert plan.served == 0


def test_another_agent_of_kube_rdma_s_is_in_the_way_unless_both_have_names_of_their_own():
    agent = PluginDaemonSet("kube-system", "ack-rdma-dp-ds", {}, is_ours=True)
    (finding,) = [one for one in planned(plugins=(agent,)).findings if one.is_error]
    assert finding.subject == "DaemonSet kube-system/ack-rdma-dp-ds"
    second = replace(RELEASE, name="second")
    assert not any(
        one.is_error
        for one in planned(InstallSight(second, "v1.36.3", (), plugins=(agent,))).findings
    )


def test_an_agent_that_a_policy_deploys_is_no_other_installation():
    agent = PluginDaemonSet("mine", "rdma", {}, ("NicClusterPolicy", "p"), is_ours=True)
    assert not [one for one in planned(plugins=(agent,)).findings if one.is_error]


@given(st.sampled_from(RELEASE.objects), st.text(), st.text())
def test_an_object_is_the_release_s_by_label_and_both_annotations(one, name, space):
    assert others(one, "rdma") == ""
    assert others(owned(one, "b"), "rdma") == "it is of Helm's release b in kube-system"
    keys = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
    metadata = {**one["metadata"], "annotations": dict(zip(keys, (name, space), strict=True))}
    who = others({**one, "metadata": metadata}, "rdma")
    assert (who == "") is ((name, space) == ("rdma", "kube-system"))
    assert len(who) <= 200


words = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)


@given(
    st.sampled_from(["", "localhost/", "registry.example.com:5000/a/"]),
    words,
    st.just("") | words,
    st.just("") | st.just(f"sha256:{'0' * 64}"),
)
def test_the_parts_of_an_image_s_name_are_found(path, name, tag, digest):
    text = f"{path}{name}{tag and ':' + tag}{digest and '@' + digest}"
    wanted = {"repository": f"{path}{name}", "tag": tag, "digest": digest}
    assert image_values(text) == {part: word for part, word in wanted.items() if word}
