"""Log lines say each change once, and nothing when there is none."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kube_rdma.model.device import PortState
from kube_rdma.model.pool import Mode, PoolSpec
from kube_rdma.model.survey import Fault
from kube_rdma.programs.agent import news
from kube_rdma.rules.discovery import judge
from kube_rdma.rules.pools import resolve

from .conftest import Node, card

STATES = st.sampled_from([PortState.ACTIVE, PortState.DOWN])
CARDS = st.dictionaries(st.integers(0, 5), STATES, max_size=4)


def pool(cards):
    survey = Node(*(card(n, state) for n, state in sorted(cards.items()))).survey
    return resolve(PoolSpec(Mode.HCA, "c"), judge(survey), survey)


def names(lines, event):
    return {line.facts["card"] for line in lines if line.event == event}


@given(CARDS, CARDS)
@settings(deadline=None)
def test_every_change_of_a_card_is_told(before, after):
    lines = list(news.of_pool(pool(before), pool(after)))
    assert names(lines, "card appeared") == {f"rxe{n}" for n in after.keys() - before.keys()}
    assert names(lines, "card vanished") == {f"rxe{n}" for n in before.keys() - after.keys()}
    down = {f"rxe{n}" for n, state in after.items() if state is PortState.DOWN}
    was_down = {f"rxe{n}" for n, state in before.items() if state is PortState.DOWN}
    here = {f"rxe{n}" for n in after}
    assert names(lines, "card cannot be used") == down - was_down
    assert names(lines, "card can be used again") == (was_down - down) & here


@given(CARDS)
@settings(deadline=None)
def test_no_change_is_no_news(cards):
    assert not list(news.of_pool(pool(cards), pool(cards)))


def test_the_first_look_tells_the_pool():
    lines = list(news.of_pool(None, pool({0: PortState.ACTIVE, 1: PortState.DOWN})))
    assert [line.event for line in lines] == ["card cannot be used", "pool"]
    assert lines[1].facts == {
        "resource": "rdma/hca",
        "shares": 1000,
        "healthy": 1000,
        "cards": "rxe0,rxe1",
    }


def test_a_node_without_cards_is_a_warning():
    (line,) = news.of_pool(None, pool({}))
    assert line.level == "warning"


def test_faults_are_told_when_they_are_new():
    first = replace(Node().survey, faults=(Fault("a", "x"),))
    second = replace(Node().survey, faults=(Fault("a", "x"), Fault("b", "y")))
    assert [line.facts["what"] for line in news.of_survey(first, second)] == ["b"]
    assert [line.facts["what"] for line in news.of_survey(None, second)] == ["a", "b"]
