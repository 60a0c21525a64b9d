"""What is granted against what was used: planted differences, and the repository's own evidence."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma_tools.rights import recorded
from kube_rdma_tools.rights.exceptions import REFUSALS, UNRECORDED, UNUSED
from kube_rdma_tools.rights.granted import granted
from kube_rdma_tools.rights.judgement import findings
from kube_rdma_tools.rights.right import Right
from kube_rdma_tools.rights.used import Evidence
from tests.house.tree import ROOT

READ = Right("ClusterRole agent", "nodes", "get")
WRITE = Right("ClusterRole agent", "nodes", "patch")
ASKED = Right("agent", "nodes", "delete")


def judged(rights, used=(), refused=(), exceptions=None, refusals=None):
    evidence = Evidence(frozenset(used), frozenset(refused))
    return list(findings(rights, evidence, exceptions or {}, refusals or {}, "FILE"))


def test_what_is_granted_and_used_is_no_finding():
    assert judged([READ, WRITE], [READ, WRITE]) == []


def test_a_right_that_nobody_used_says_how_its_use_is_recorded():
    (sentence,) = judged([READ, WRITE], [READ])
    assert sentence.startswith("ClusterRole agent: patch nodes is granted, and no test used it")
    assert "`ARGS=--record make rights`" in sentence
    assert "FILE" in sentence


def test_an_exception_stands_for_a_use_and_is_a_finding_once_it_is_not_needed():
    assert judged([READ, WRITE], [READ], exceptions={WRITE: "why"}) == []
    (sentence,) = judged([READ, WRITE], [READ, WRITE], exceptions={WRITE: "why"})
    assert "was used: take it out of the exceptions" in sentence
    (sentence,) = judged([READ], [READ], exceptions={WRITE: "why"})
    assert "is granted no more" in sentence


def test_a_request_that_no_role_allows_is_a_finding():
    (sentence,) = judged([READ], [READ], [ASKED])
    assert sentence.startswith("agent: delete nodes was asked for and refused")
    assert judged([READ], [READ], [ASKED], refusals={ASKED: "why"}) == []
    (sentence,) = judged([READ], [READ], refusals={ASKED: "why"})
    assert "was not refused" in sentence


def test_a_request_before_its_role_is_bound_is_none():
    before = Right("agent", "nodes", "get")
    assert judged([READ], [READ], [before]) == []


def test_each_right_of_the_manifests_is_used_by_a_test_of_the_lab_or_an_exception():
    """A new right fails here until a run that uses it is recorded."""
    evidence = recorded.read(recorded.FILE.read_text())
    assert list(findings(granted(), evidence, UNUSED, REFUSALS, recorded.NAME)) == []


def test_the_recorded_file_is_as_it_is_written():
    text = recorded.FILE.read_text()
    day = text.partition('"recorded": "')[2].partition('"')[0]
    assert recorded.write(recorded.read(text), day) == text


WORDS = st.text("abcdefghijklmnop./-", min_size=1)
RIGHTS = st.frozensets(st.builds(Right, WORDS, WORDS, WORDS))


@given(RIGHTS, RIGHTS)
def test_what_is_written_is_read_again(used, refused):
    evidence = Evidence(used, refused)
    assert recorded.read(recorded.write(evidence, "2026-11-26")) == evidence


@given(RIGHTS, RIGHTS, RIGHTS)
def test_each_right_is_used_or_excepted_or_one_finding(granted_rights, used, exceptions):
    """And an exception is granted and unused, or a finding."""
    left = granted_rights - used - exceptions
    needless = exceptions - (granted_rights - used)
    listed = judged(granted_rights, used, exceptions=dict.fromkeys(exceptions, "why"))
    both = exceptions & used - granted_rights
    assert len(listed) == len(left) + len(needless) + len(both)


def test_what_is_recorded_loses_rights_that_are_granted_no_more():
    before = Evidence(frozenset({READ, WRITE}), frozenset())
    kept = recorded.merged(before, Evidence(frozenset(), frozenset({ASKED})), [READ])
    assert kept == Evidence(frozenset({READ}), frozenset({ASKED}))


def test_each_exception_has_a_reason():
    assert all(text.endswith(".") for text in (*UNUSED.values(), *REFUSALS.values()))


def test_what_is_not_recorded_yet_names_the_test_that_is_to_show_it():
    assert all((ROOT / test).is_file() for test in json.loads(UNRECORDED.read_text()))


def test_all_roles_of_the_installation_are_read():
    roles = {right.role for right in granted()}
    assert {"ClusterRole agent", "Role controller", "Role doctor", "ClusterRole verify"} <= roles
    assert Right("ClusterRole agent", "resourceslices.resource.k8s.io", "create") in granted()
