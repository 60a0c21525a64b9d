"""When a BandwidthCheck is done: at once if changed, again if hindered, else by its own clock."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.verify import BandwidthHistory
from kube_rdma.verify.rules.pairs import AGAIN, due

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
SPANS = st.timedeltas(timedelta(0), timedelta(days=3))


@st.composite
def histories(draw, ends=(True, False)):
    began = NOW - draw(SPANS)
    span = min(draw(SPANS), NOW - began)
    outcome = draw(st.sampled_from(["measured", "hindered", "refused"]))
    return BandwidthHistory(
        draw(st.integers(1, 3)),
        began,
        began + span if draw(st.sampled_from(ends)) else None,
        hindered=outcome == "hindered",
        refused=outcome == "refused",
    )


@given(st.integers(1, 3), st.none() | st.integers(60, 10**6), histories() | st.none())
def test_what_nobody_has_done_to_its_end_is_due_now(generation, every, history):
    at = due(generation, every, history, NOW)
    if history is None or history.generation != generation or history.ended is None:
        assert at == NOW
    elif history.refused or (not history.hindered and every is None):
        assert at is None
    else:
        assert at is not None
        assert at >= history.ended


@given(st.integers(60, 10**6), histories(ends=(True,)))
def test_runs_keep_the_time_between_their_begins(every, history):
    at = due(history.generation, every, history, NOW)
    planned = max(history.ended, history.began + timedelta(seconds=every))
    if history.refused:
        assert at is None
    elif history.hindered:
        assert at == min(planned, history.ended + AGAIN)
    else:
        assert at == planned
