"""Log lines say each change once, and nothing when there is none."""

import pytest
from structlog.testing import capture_logs

from kube_base.frozen import replace
from kube_rdma.model.survey import Fault
from kube_rdma.pools import servers
from kube_rdma.pools.rules.absence import HealthChange
from tests.unit.agent.conftest import Node


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
    with capture_logs() as lines:
        servers.log_card(change, "mlx5_0", seen_before=known, present=present)
    expected = {"event": event, "card": "mlx5_0", "log_level": "info" if healthy else "warning"}
    assert lines == [expected | ({} if healthy else {"why": "its cable; its fan"})]


def test_faults_are_told_when_they_are_new():
    first = replace(Node().survey, faults=(Fault("a", "x"),))
    second = replace(Node().survey, faults=(Fault("a", "x"), Fault("b", "y")))
    with capture_logs() as lines:
        servers.log_faults(first, second)
        servers.log_faults(None, second)
    assert [line["what"] for line in lines] == ["b", "a", "b"]


def test_cards_that_join_or_leave_the_pools_are_told_unless_their_health_was():
    before, after = {"a": "rxe0", "b": "rxe1"}, {"b": "rxe1", "c": "rxe2", "d": "rxe3"}
    with capture_logs() as lines:
        servers.log_cards(before, after, reported={"d"})
    assert [(line["event"], line["card"]) for line in lines] == [
        ("card appeared", "rxe2"),
        ("card vanished", "rxe0"),
    ]
