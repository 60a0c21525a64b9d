"""Log lines say each change once, and nothing when there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.device import PortState
from kube_rdma.model.pools import Mode, PoolSpec
from kube_rdma.model.survey import Fault
from kube_rdma.pools import servers
from kube_rdma.pools.rules.absence import HealthChange
from kube_rdma.pools.rules.health import judge
from kube_rdma.pools.rules.pools import resolve
from kube_rdma.pools.rules.selection import cards as cards_of
from tests.unit.agent.conftest import Node, card

SPEC = PoolSpec("rdma/hca", Mode.HCA, "c")
STATES = st.sampled_from([PortState.ACTIVE, PortState.DOWN])
CARDS = st.dictionaries(st.integers(0, 5), STATES, max_size=4)


def pool(cards):
    survey = Node(*(card(n, state) for n, state in sorted(cards.items()))).survey
    found, _ = resolve([SPEC], cards_of(survey, judge(survey)), survey)
    return found[0]


@pytest.mark.parametrize(
    ("healthy", "known", "present", "event"),
    [
        (True, True, True, "card healthy again"),
        (True, False, True, "card appeared"),
        (False, True, True, "card unhealthy"),
        (False, True, False, "card vanished"),
    ],
)
def test_what_became_of_a_card(healthy, known, present, event):
    change = HealthChange("0000:81:00.0", healthy, () if healthy else ("its cable", "its fan"))
    line = servers.of_card(change, "mlx5_0", seen_before=known, present=present)
    assert line.event == event
    assert line.facts["card"] == "mlx5_0"
    assert line.level == ("info" if healthy else "warning")
    assert healthy or line.facts["why"] == "its cable; its fan"


@given(CARDS)
def test_no_change_is_no_news(cards):
    assert not list(servers.of_pool(pool(cards), pool(cards)))


def test_the_first_look_tells_the_pool():
    lines = list(servers.of_pool(None, pool({0: PortState.ACTIVE, 1: PortState.DOWN})))
    assert [line.event for line in lines] == ["pool"]
    assert lines[0].facts == {
        "resource": "rdma/hca",
        "shares": 1000,
        "healthy": 1000,
        "cards": "rxe0,rxe1",
    }


def test_a_node_without_cards_is_a_warning():
    (line,) = servers.of_pool(None, pool({}))
    assert line.level == "warning"


def test_faults_are_told_when_they_are_new():
    first = replace(Node().survey, faults=(Fault("a", "x"),))
    second = replace(Node().survey, faults=(Fault("a", "x"), Fault("b", "y")))
    assert [line.facts["what"] for line in servers.of_survey(first, second)] == ["b"]
    assert [line.facts["what"] for line in servers.of_survey(None, second)] == ["a", "b"]


def test_cards_that_join_or_leave_the_pools_are_told_unless_their_health_was():
    before, after = {"a": "rxe0", "b": "rxe1"}, {"b": "rxe1", "c": "rxe2", "d": "rxe3"}
    lines = list(servers.of_cards(before, after, reported={"d"}))
    assert [(line.event, line.facts["card"]) for line in lines] == [
        ("card appeared", "rxe2"),
        ("card vanished", "rxe0"),
    ]
