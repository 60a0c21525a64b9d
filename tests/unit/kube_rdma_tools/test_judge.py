"""Every preset in every kind of cluster: the judge sees nothing but what documents ask for."""

from itertools import islice

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.install.installation import assignment, notes
from kube_rdma.install.rules.notes import NO_DEFINITION
from kube_rdma.install.rules.presets import DISTRIBUTIONS, PRESETS
from kube_rdma_tools.judge.__main__ import main
from kube_rdma_tools.judge.by_document import is_by_document
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.installations import assignments, distribution, installation, presets
from kube_rdma_tools.judge.listing import Occurrence, lines, occurrence
from kube_rdma_tools.judge.rules import RULES, judge
from kube_rdma_tools.judge.selinux_policies import SELINUX_POLICIES

PLACES = tuple(ENVIRONMENTS)


@pytest.fixture(scope="module")
def seen():
    """What the judge sees of all installations, and no document asks for."""
    return {
        occurrence(violation, name, preset)
        for name, environment in ENVIRONMENTS.items()
        for preset in PRESETS
        for violation in judge(installation(preset, environment), environment)
        if not is_by_document(violation, name, preset)
    }


def test_no_cluster_refuses_anything_but_what_a_document_asks_for(seen):
    """A new violation is to be ended, or has its row with a document's statement."""
    assert not seen, "\n".join(lines(seen, PLACES))


def test_networks_without_their_definition_would_be_seen_and_are_told():
    """As `kube-rdma render` prints them; the chart looks at the cluster and adds the definition."""
    plain = ENVIRONMENTS["kubeadm-1.36"]
    without = replace(plain, values={"crds.networkAttachmentDefinitions": "false"})
    seen = {violation.rule for violation in judge(installation("rails", without), without)}
    assert seen == {"unserved-kind"}
    assert not judge(installation("rails", plain), plain)
    layers = [assignment(text) for text in assignments(without, without.values)]
    assert NO_DEFINITION in notes(layers, "rails")


def test_every_distribution_and_every_policy_is_judged_somewhere():
    """A distribution that the product gains is chosen where an environment waits for it."""
    assert {distribution(environment) for environment in ENVIRONMENTS.values()} == {*DISTRIBUTIONS}
    policies = [node.selinux for row in ENVIRONMENTS.values() for node in row.nodes]
    assert all(policy in policies for policy in SELINUX_POLICIES)
    assert set(presets()) == PRESETS.keys()


def test_no_environment_is_lost_and_each_has_cards():
    assert len(ENVIRONMENTS) == 36
    for environment in ENVIRONMENTS.values():
        names = [node.name for node in environment.nodes]
        assert len(set(names)) == len(names)
        assert any(node.cards and not node.virtual for node in environment.nodes)


def test_hooks_and_the_operator_s_daemon_sets_are_judged_too():
    objects = installation("nvidia-operator", ENVIRONMENTS["kubeadm-1.36"])
    names = {(made["kind"], made["metadata"]["name"]) for made in objects}
    assert ("Job", "kube-rdma-retirement-drivers") in names
    assert ("DaemonSet", "rdma-shared-dp-ds") in names
    assert sum(name.startswith("ofed-driver") for _, name in names) == 1
    vke = installation("vke", ENVIRONMENTS["kubeadm-1.36"])
    assert "kube-rdma-leaving" in {made["metadata"]["name"] for made in vke}


entries = st.builds(
    Occurrence,
    st.sampled_from(tuple(RULES)),
    st.sampled_from(("DaemonSet/a", "Deployment/b")),
    st.sampled_from(("", "agent")),
    st.sampled_from(tuple(islice(ENVIRONMENTS, 6))),
    st.sampled_from(tuple(PRESETS)),
)


def read(line, environments):
    """What a line is about."""
    rule, where, container, places, presets = line.split(" | ")
    names = places.split()
    if names[:1] == ["*"]:
        names = [name for name in environments if name not in names[2:]]
    blamed = "" if container == "-" else container
    return {
        Occurrence(rule, where, blamed, name, preset)
        for name in names
        for preset in presets.split()
    }


@given(st.sets(entries))
def test_lines_say_what_they_were_made_of(wanted):
    environments = tuple(islice(ENVIRONMENTS, 6))
    listed = [read(line, environments) for line in lines(wanted, environments)]
    assert set().union(*listed) == wanted
    assert sum(map(len, listed)) == len(wanted)


def test_the_page_leaves_out_what_a_document_asks_for():
    ran = CliRunner().invoke(main, ["--environment", "scc", "--preset", "scc"])
    assert ran.exit_code == 0, ran.output
    assert ran.output.splitlines()[-1] == "Presets: 1, environments: 1, violations: 0"
