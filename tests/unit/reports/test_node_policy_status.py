"""The status of a NodePolicy: it has an end, and its conditions keep their times."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kube_base.foreign_json import decoded
from kube_base.frozen import replace
from kube_rdma.model.pools import PolicyOutcome, PolicyRemark, PolicyRollup
from kube_rdma.reports.node_policy_status import MOST_REMARKS, NodePolicyStatus, node_policy_status

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
APPLIED = PolicyRollup(((PolicyOutcome.APPLIED, 2), (PolicyOutcome.OVERRULED, 1)))
REMARK = PolicyRemark("node-1", PolicyOutcome.PENDING, "these pods have ended: default/a")
PENDING = PolicyRollup(((PolicyOutcome.APPLIED, 2), (PolicyOutcome.PENDING, 1)), (REMARK,))

remarks = st.builds(
    PolicyRemark,
    st.just("node-1"),
    st.sampled_from([o for o in PolicyOutcome if o is not PolicyOutcome.APPLIED]),
    st.text(st.characters(codec="utf-8"), max_size=1000),
)


def counted(some):
    counts = [(what, sum(r.outcome is what for r in some)) for what in PolicyOutcome]
    return PolicyRollup(tuple(counts), tuple(some))


def conditions(status):
    return {each.type: (each.status, each.reason) for each in status.conditions}


@given(st.lists(remarks, max_size=40).map(counted) | st.text(min_size=1, max_size=1000))
def test_a_status_survives_its_way_and_has_an_end(rolled):
    status = node_policy_status(None, 7, rolled, NOW)
    assert decoded(msgspec.json.encode(status), NodePolicyStatus) == status
    assert len(status.remarks) <= MOST_REMARKS
    assert status.applied + status.pending + status.refused + status.overruled == status.nodes
    assert node_policy_status(status, 7, rolled, LATER) == status


def test_a_policy_that_is_applied_wherever_it_counts_is_ready():
    status = node_policy_status(None, 1, APPLIED, NOW)
    assert conditions(status) == {
        "Ready": ("True", "Applied"),
        "Accepted": ("True", "Accepted"),
        "Applied": ("True", "Applied"),
    }
    assert status.conditions[0].message == "applied on 2 of 3 nodes, overruled on 1"


def test_a_policy_that_waits_says_for_what_and_where():
    status = node_policy_status(None, 1, PENDING, NOW)
    assert conditions(status)["Ready"] == ("False", "WaitsForNodes")
    assert status.conditions[0].message == f"pending on 1 of 3 nodes. node-1: {REMARK.sentence}"


def test_a_refusal_by_a_node_counts_more_than_others_that_wait():
    refused = PolicyRemark("node-2", PolicyOutcome.REFUSED, "no")
    both = PolicyRollup((*PENDING.counts, (PolicyOutcome.REFUSED, 1)), (refused, REMARK))
    assert conditions(node_policy_status(None, 1, both, NOW))["Applied"] == (
        "False",
        "RefusedByNodes",
    )


def test_a_policy_for_no_node_and_one_that_is_not_understood_are_told_apart():
    nowhere = conditions(node_policy_status(None, 1, PolicyRollup(), NOW))
    assert nowhere["Ready"] == ("False", "NoNodeMatches")
    assert nowhere["Accepted"] == ("True", "Accepted")
    garbled = node_policy_status(None, 1, "spec.pools: bad", NOW)
    assert conditions(garbled)["Accepted"] == ("False", "Refused")
    assert garbled.conditions[0].message == "spec.pools: bad"


def test_a_condition_has_its_time_until_it_turns():
    first = node_policy_status(None, 1, APPLIED, NOW)
    grown = replace(APPLIED, counts=((PolicyOutcome.APPLIED, 9),))
    same = node_policy_status(first, 1, grown, LATER)
    assert {each.last_transition_time for each in same.conditions} == {NOW}
    turned = node_policy_status(same, 2, PENDING, LATER)
    times = {each.type: each.last_transition_time for each in turned.conditions}
    assert times == {"Ready": LATER, "Accepted": NOW, "Applied": LATER}
