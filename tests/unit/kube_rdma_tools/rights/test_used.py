"""What an audit log tells of rights; the events are as the lab's API server 1.36 writes them."""

import json

import pytest

from kube_rdma_tools.rights import used
from kube_rdma_tools.rights.right import Right

AGENT = "system:serviceaccount:kube-rdma-vke:kube-rdma-agent"
OWN = "kube-rdma/0.1.0"


def allowed(kind, name):
    return (
        f'RBAC: allowed by {kind}Binding "{name}" of {kind} "{name}" to ServiceAccount '
        '"kube-rdma-agent/kube-rdma-vke"'
    )


def event(verb="list", reason="", **changes):
    """An event as a line of the log."""
    about = {"resource": "ipblocks", "apiGroup": "kube-rdma.io", "apiVersion": "v1alpha1"}
    notes = {
        "authorization.k8s.io/decision": "allow" if reason else "forbid",
        "authorization.k8s.io/reason": reason,
    }
    usual = {
        "verb": verb,
        "user": {"username": AGENT},
        "userAgent": OWN,
        "objectRef": about,
        "responseStatus": {"code": 200 if reason else 403},
        "annotations": notes,
    }
    return json.dumps(usual | changes)


def rights(*lines):
    listed = used.evidence(used.uses(lines))
    return {str(right) for right in listed.used}, {str(right) for right in listed.refused}


def test_a_use_is_that_of_the_role_that_allowed_it_whatever_its_installation_is_called():
    lines = [event(reason=allowed("ClusterRole", f"{name}-agent")) for name in ("kube-rdma", "a")]
    assert rights(*lines) == ({"ClusterRole agent: list ipblocks.kube-rdma.io"}, set())


def test_the_operator_s_roles_are_the_controller_s():
    line = event("get", allowed("Role", "kube-rdma-operator"))
    assert rights(line)[0] == {"Role controller: get ipblocks.kube-rdma.io"}


def test_a_refused_request_of_a_program_counts_as_one():
    assert rights(event("delete")) == (set(), {"agent: delete ipblocks.kube-rdma.io"})


def test_a_test_s_kubectl_with_a_program_s_token_proves_nothing():
    reason = allowed("ClusterRole", "kube-rdma-agent")
    words = {"userAgent": "kubectl/v1.36.3"}
    assert rights(event(reason=reason, **words), event("delete", **words)) == (set(), set())


def test_people_may_ask_by_any_program():
    line = event(
        reason=allowed("ClusterRole", "kube-rdma-view"),
        user={"username": "somebody"},
        userAgent="kubectl/v1.36.3",
    )
    assert rights(line)[0] == {"ClusterRole view: list ipblocks.kube-rdma.io"}


@pytest.mark.parametrize(("verb", "role"), [("list", "view"), ("create", "edit")])
def test_what_kubernetes_roles_take_in_counts_for_the_role_that_gave_it(verb, role):
    line = event(verb, allowed("ClusterRole", "edit"), user={"username": "somebody"})
    assert rights(line)[0] == {f"ClusterRole aggregate-to-{role}: {verb} ipblocks.kube-rdma.io"}


def test_an_apply_that_made_its_object_used_the_right_to_create_it():
    line = event("patch", allowed("Role", "x-admission"), responseStatus={"code": 201})
    assert {right.partition(": ")[2].split()[0] for right in rights(line)[0]} == {"patch", "create"}


def test_what_a_policy_refused_later_is_no_use():
    reason = allowed("ClusterRole", "kube-rdma-agent")
    assert rights(event(reason=reason, responseStatus={"code": 422})) == (set(), set())


def test_a_line_that_is_cut_off_and_a_foreign_role_say_nothing():
    foreign = event(reason=allowed("ClusterRole", "system:discovery"))
    assert rights(event()[:50], foreign) == (set(), set())


def test_a_run_s_file_says_what_the_logs_say_once(tmp_path):
    """Of older parts of the log too."""
    logs, runs = tmp_path / "logs", tmp_path / "runs"
    logs.mkdir()
    line = event(reason=allowed("ClusterRole", "kube-rdma-agent"))
    (logs / "audit.log").write_text(f"{line}\n{line}\n")
    (logs / "audit-2026-11-26T20-00-00.000.log").write_text(event("delete") + "\n")
    assert used.gather(logs, runs / "a.jsonl") == 2
    listed = used.evidence(used.read(runs))
    assert listed.used == {Right("ClusterRole agent", "ipblocks.kube-rdma.io", "list")}
    assert listed.refused == {Right("agent", "ipblocks.kube-rdma.io", "delete")}
