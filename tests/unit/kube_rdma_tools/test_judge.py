"""Every preset in every kind of cluster: the judge sees what the list of known violations says."""

from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.rules.install.presets import DISTRIBUTIONS, PRESETS
from kube_rdma_tools.judge.__main__ import main
from kube_rdma_tools.judge.environments import ENVIRONMENTS
from kube_rdma_tools.judge.installations import distribution, installation, presets
from kube_rdma_tools.judge.listing import (
    HEADING,
    ListError,
    Occurrence,
    lines,
    occurrence,
    read_list,
)
from kube_rdma_tools.judge.rules import RULES, judge
from kube_rdma_tools.judge.selinux_policies import SELINUX_POLICIES

KNOWN = Path(__file__).with_name("judge_known.txt")
HEAD = f"{HEADING}A reason.\n"


@pytest.fixture(scope="module")
def seen():
    """What the judge sees of all installations."""
    return {
        occurrence(violation, name, preset)
        for name, environment in ENVIRONMENTS.items()
        for preset in PRESETS
        for violation in judge(installation(preset, environment), environment)
    }


def differences(seen, text):
    """Lines that the list lacks, and lines of it that are true no more."""
    listed = read_list(text, ENVIRONMENTS).keys()
    return tuple(
        "\n".join(lines(entries, tuple(ENVIRONMENTS))) for entries in (seen - listed, listed - seen)
    )


def test_what_the_judge_sees_is_what_is_known(seen):
    """A new violation is to be ended, or listed with what will end it; an ended one is deleted."""
    new, ended = differences(seen, KNOWN.read_text(encoding="utf-8"))
    assert not new, f"{KNOWN.name} lacks:\n{new}"
    assert not ended, f"{KNOWN.name} has, and it is no longer so:\n{ended}"


def test_the_list_can_lack_a_violation_and_have_too_many(seen):
    text = KNOWN.read_text(encoding="utf-8")
    line = "taken-name | DaemonSet/ack-rdma-dp-ds | - | ack | ack\n"
    assert differences(seen, text.replace(line, "")) == (line.strip(), "")
    other = "nowhere | Job/nobody | - | talos | ib"
    assert differences(seen, f"{text}\n{other}\n") == ("", other)


def test_every_line_says_what_will_end_it():
    listed = read_list(KNOWN.read_text(encoding="utf-8"), ENVIRONMENTS)
    headings = [
        line.removeprefix(HEADING)
        for line in KNOWN.read_text(encoding="utf-8").splitlines()
        if line.startswith(HEADING)
    ]
    assert sorted(headings) == sorted(set(listed.values()))
    assert {entry.rule for entry in listed} <= RULES.keys()
    assert {entry.preset for entry in listed} <= PRESETS.keys()


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


@given(st.sets(entries))
def test_a_list_says_what_it_was_made_of(wanted):
    environments = dict(islice(ENVIRONMENTS.items(), 6))
    text = HEAD + "\n".join(lines(wanted, tuple(environments)))
    assert read_list(text, environments).keys() == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nowhere | Job/a | - | talos | ib\n", "below no heading"),
        (f"{HEAD}nowhere | Job/a | - | talos\n", "has 4 cells"),
        (f"{HEAD}nowhere | Job/a | - | tallos | ib\n", "no environment: tallos"),
        (f"{HEAD}" + "nowhere | Job/a | - | talos | ib\n" * 2, "says again"),
        (f"{HEAD}a | b | - | talos | ib\na | b | - | * | ib\n", "line 3 says again"),
    ],
)
def test_a_line_that_is_no_use_is_refused(text, reason):
    with pytest.raises(ListError, match=reason):
        read_list(text, ENVIRONMENTS)


def test_the_page_shows_clusters_presets_and_each_violation():
    ran = CliRunner().invoke(main, ["--environment", "scc", "--preset", "scc"])
    assert ran.exit_code == 0, ran.output
    head, row, *rest = ran.output.splitlines()
    assert head.split() == ["environment", "scc"]
    assert row.split()[:2] == ["scc", "2"]
    text = "\n".join(rest)
    assert "taken-name · Another installation has an object of this name" in text
    assert "  DaemonSet/rdma-device-plugin\n" in text
    assert "metadata.name: the SCC document" in text
    assert "→ choose another name" in text
    assert rest[-1] == "Presets: 1, environments: 1, violations: 2 (2 taken-name)"
    assert max(map(len, rest[:-1])) <= 100


def test_the_page_can_be_of_one_rule_and_be_lines_of_the_list():
    words = ["--rule", "taken-name", "--rule", "late-object", "--lines", "--environment", "scc"]
    ran = CliRunner().invoke(main, words)
    listed = read_list(KNOWN.read_text(encoding="utf-8"), ENVIRONMENTS)
    shown = read_list(HEAD + ran.output, ENVIRONMENTS)
    assert shown.keys() == {
        entry for entry in listed if (entry.rule, entry.environment) == ("taken-name", "scc")
    }
