"""What the API server of a lab writes down, and what not."""

import json

import pytest

from kube_rdma_lab import audit


def level(user, groups):
    """What the first rule that fits says, as the API server reads a policy."""
    for rule in audit.policy()["rules"]:
        if "nonResourceURLs" in rule:
            continue
        names, teams = rule.get("users"), rule.get("userGroups")
        if names is None and teams is None:
            return rule["level"]
        if user in (names or ()) or set(groups) & set(teams or ()):
            return rule["level"]
    raise AssertionError("no rule for all others")


@pytest.mark.parametrize(
    ("user", "group"),
    [
        ("system:serviceaccount:kube-rdma:kube-rdma-agent", "system:serviceaccounts:kube-rdma"),
        ("system:serviceaccount:kube-system:kube-rdma-agent", "system:serviceaccounts:kube-system"),
        ("system:serviceaccount:default:doctors", "system:serviceaccounts:default"),
        ("somebody", "system:authenticated"),
    ],
)
def test_programs_of_kube_rdma_and_people_are_written_down(user, group):
    assert level(user, [group]) == "Metadata"


@pytest.mark.parametrize(
    ("user", "group"),
    [
        ("kubernetes-admin", "system:masters"),
        ("system:node:node-1", "system:nodes"),
        ("system:kube-scheduler", "system:authenticated"),
        (
            "system:serviceaccount:kube-system:daemon-set-controller",
            "system:serviceaccounts:kube-system",
        ),
    ],
)
def test_the_admin_and_kubernetes_itself_are_not(user, group):
    assert level(user, [group]) == "None"


def test_the_log_is_bounded_and_its_policy_is_a_file(tmp_path):
    words = dict(word.split("=", 1) for word in audit.options(tmp_path))
    assert json.loads((tmp_path / "audit-policy.json").read_text()) == audit.policy()
    assert words["--audit-log-path"] == str(tmp_path / "logs/audit.log")
    assert int(words["--audit-log-maxsize"]) * (int(words["--audit-log-maxbackup"]) + 1) <= 100
