"""`kube-rdma status --wait`: which look counts, when it ends, what is said meanwhile."""

from datetime import UTC, datetime
from math import inf

import pytest

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.model.reports import ClusterHealth, ProgramRole
from kube_rdma.reports.gather import BETWEEN_SECONDS, until_well
from tests.unit.reports.rules.test_cluster import CONTROLLER, REPORT, WELL

NO_AGENT = replace(WELL, workloads=(CONTROLLER,))
NOT_READY = replace(
    WELL,
    workloads=tuple(
        replace(one, ready=0) if one.role is ProgramRole.CONTROLLER else one
        for one in WELL.workloads
    ),
)
AWAY = Unavailable("The API server does not answer.")


class Cluster:
    """Looks one after the other, the last one again and again; time goes by while one sleeps."""

    def __init__(self, *looks):
        self.looks, self.now, self.heard = list(looks), 0.0, []

    async def take(self):
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return look

    async def sleep(self, seconds):
        self.now += seconds

    async def wait(self, seconds):
        return await until_well(
            self.take, seconds, self.heard.append, clock=lambda: self.now, sleep=self.sleep
        )


async def test_it_ends_with_the_first_look_at_which_all_is_well():
    cluster = Cluster(NO_AGENT, NOT_READY, NOT_READY, WELL, NO_AGENT)
    look = await cluster.wait(60)
    assert (look.health, look.facts) == (ClusterHealth.HEALTHY, WELL)
    assert cluster.now == 3 * BETWEEN_SECONDS
    first, second = cluster.heard
    assert first.startswith("Waiting for NoAgent")
    assert second == "Waiting for ControllerNotReady deployment/kr/controller."


@pytest.mark.parametrize("seconds", [0, 1, 2, 5, 61])
async def test_it_ends_in_time_with_the_last_look(seconds):
    cluster = Cluster(NOT_READY)
    look = await cluster.wait(seconds)
    assert look.health is ClusterHealth.PROBLEMS
    assert seconds - BETWEEN_SECONDS < cluster.now <= seconds


async def test_an_api_server_that_is_away_is_waited_for():
    cluster = Cluster(AWAY, AWAY, WELL)
    assert (await cluster.wait(60)).health is ClusterHealth.HEALTHY
    assert cluster.heard == ["The API server does not answer."]


async def test_an_api_server_that_stays_away_is_told():
    with pytest.raises(Unavailable):
        await Cluster(AWAY).wait(10)


async def test_a_right_that_is_missing_is_not_waited_for():
    cluster = Cluster(Refused("no right", remedy="Ask for it"))
    with pytest.raises(Refused):
        await cluster.wait(60)
    assert cluster.now == 0


async def test_a_report_that_grows_old_is_shown_though_nothing_else_changes():
    """A look at which only the time differs is not."""
    reports = {name: replace(REPORT, renew_time="2026-01-01T00:00:00Z") for name in WELL.reports}
    looks = [
        replace(WELL, reports=reports, read_at=datetime(2026, 1, 1, 0, minute, tzinfo=UTC))
        for minute in (1, 2, 25)
    ]
    shown, cluster = [], Cluster(*looks, Refused("the end", remedy="End"))
    with pytest.raises(Refused):
        await until_well(cluster.take, inf, shown=shown.append, sleep=cluster.sleep)
    assert [[one.code for one in look.findings] for look in shown] == [[], ["ReportOld"] * 2]
