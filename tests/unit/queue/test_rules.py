"""Which answer a Workload gets, as decisions over values."""

import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model import queue as model
from kube_rdma.model.kubernetes import moment
from kube_rdma.model.queue import RailsWorld, WaitingPods
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool
from kube_rdma.model.verify import LastMeasurement
from kube_rdma.queue import rules
from kube_rdma.queue.rules import answer, entries
from kube_rdma.verify.rules.suspects import suspected

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
NIC, GPU = "rdma/nic", "nvidia.com/gpu"
NODES = ("node-1", "node-2", "node-3")
ILL = ("mlx5_3",)


def entry(name="rails", state=model.PENDING, **more):
    return model.CheckEntry(name, state, "", "2026-11-30T11:00:00Z", **more)


def workload(*pods, checks=None):
    return model.WaitingWorkload("team", "job", "uid", "7", checks or (entry(),), pods)


def pods(hosts=NODES[:2], shares=8, **more):
    """Pods of a job, one on each host."""
    named = None if hosts is None else dict.fromkeys(hosts, 1)
    usual = {"count": len(hosts or ()), "resources": {NIC: shares}, "hosts": named}
    return WaitingPods(**{**usual, **more})


def report(healthy=8, *, age=0, mode="exclusive", ill=(), resource=NIC):
    """A report some seconds ago; ill cards with `no port is ACTIVE`."""
    renewed = moment(NOW - timedelta(seconds=age))
    bind = "pool" if mode == "hca" else ""
    pool = ReportedPool(resource, mode, shares=8, healthy=healthy, cards=8, bind=bind)
    cards = tuple(
        ReportedCard(id=name, name=name, resources=(resource,), reasons=("no port is ACTIVE",))
        for name in ill
    )
    return NodeReport("1", cards, pools=(pool,), renew_time=renewed)


def world(*reports, **more):
    """Nodes with these reports, None for a node without one."""
    named = dict(zip(NODES, reports, strict=False))
    seen = {name: one for name, one in named.items() if one}
    labels = {name: {"zone": name[-1]} for name in NODES}
    return RailsWorld(NOW, "kube-rdma", seen, labels, **more)


def run(*nodes, namespace="kube-rdma", hours=1):
    """A measurement that suspects one node, or two that are slow with each other."""
    at = NOW - timedelta(hours=hours)
    return LastMeasurement(namespace, at, {frozenset(nodes): "is a suspect"})


def suspects(*runs):
    return suspected(runs, NOW)


WELL = world(report(), report(), report())


def test_well_nodes_are_ready_and_the_answer_says_what_was_looked_at():
    facts = world(report(), report(), report(), flavors={"gpu": {}})
    free = pods(None, count=1, flavors=("gpu",))
    state, message = answer(workload(pods(), free), facts)
    assert state == model.READY
    assert message == (
        "NodeReports show enough healthy shares on each of 2 chosen nodes and on the nodes of "
        "flavor gpu together, of which Kueue has chosen none"
    )


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (world(report()), "node node-2 has no NodeReport of the last 8 minutes"),
        (world(report(), report(age=481)), "node node-2 has no NodeReport of the last 8 minutes"),
        (world(report(), NodeReport("1")), "node node-2 has no NodeReport of the last 8 minutes"),
        (
            world(report(), report(7, ill=ILL)),
            "of rdma/nic are on node node-2, and the pods ask for 8: mlx5_3: no port is ACTIVE",
        ),
        (world(report(), report(resource="rdma/hca")), "0 healthy shares of rdma/nic are on"),
        (
            world(report(), report(1000, mode="hca", ill=ILL)),
            "node node-2 gives an ill card with each share: mlx5_3: no port is ACTIVE",
        ),
    ],
)
def test_what_a_chosen_node_lacks_is_named(facts, why):
    state, message = answer(workload(pods()), facts)
    assert state == model.RETRY
    assert why in message


def test_a_host_that_is_no_node_is_never_ready():
    assert answer(workload(pods(("gone",))), WELL)[0] == model.RETRY


def test_an_ill_card_matters_little_where_a_share_is_one_card():
    facts = world(report(7, ill=ILL), report())
    assert answer(workload(pods(shares=4)), facts)[0] == model.READY


def test_pods_of_several_sets_on_one_node_share_its_cards():
    half = pods(NODES[:1], 5)
    assert answer(workload(half), WELL)[0] == model.READY
    assert "the pods ask for 10" in answer(workload(half, half), WELL)[1]


def test_resources_of_others_are_not_counted():
    asks = pods(resources={GPU: 99, NIC: 8})
    assert answer(workload(asks), WELL)[0] == model.READY


def test_a_job_without_rdma_runs_where_no_agent_is():
    asks = pods(("no-agent",), resources={GPU: 8})
    assert answer(workload(asks), WELL) == (model.READY, "No pod asks for RDMA")


def test_without_any_report_nobody_knows_what_is_rdma():
    asks = pods(resources={"example.com/nic": 8})
    assert answer(workload(asks), world())[0] == model.RETRY


def test_an_rdma_resource_that_no_report_offers_is_lacking():
    asks = pods(resources={"rdma/other": 1})
    assert answer(workload(asks), WELL)[0] == model.RETRY


def test_a_launcher_that_asks_for_nothing_may_run_where_there_are_no_reports():
    launcher = WaitingPods(1, hosts={"gone": 1})
    assert answer(workload(launcher), world())[0] == model.READY


def test_nodes_of_a_job_with_claims_need_reports_and_no_more():
    asks = pods(resources={}, claims=True)
    state, message = answer(workload(asks), WELL)
    assert state == model.READY
    assert "claims are not counted" in message
    assert answer(workload(asks), world(report()))[0] == model.RETRY


@pytest.mark.parametrize("both", [True, False])
def test_the_answer_says_if_all_pods_measure_before_they_start(both):
    asking = (pods(measures=True), pods(measures=both, shares=0))
    state, message = answer(workload(*asking), WELL)
    assert state == model.READY
    assert ("its pods measure their rails before they start" in message) is both


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (run("node-2"), model.RETRY),
        (run("node-1", "node-2"), model.RETRY),
        (run("node-2", "node-3"), model.READY),
        (run("node-3"), model.READY),
        (run("node-2", hours=25), model.READY),
        (run("node-2", namespace="team"), model.RETRY),
        (run("node-2", namespace="foes"), model.READY),
    ],
)
def test_recent_suspects_among_the_nodes_count(one, state):
    facts = world(report(), report(), report(), suspects=suspects(one))
    said, message = answer(workload(pods()), facts)
    assert said == state
    assert ("is a suspect" in message) == (state == model.RETRY)


def spread(count, **more):
    return pods(None, count=count, **more)


def test_without_chosen_nodes_their_sum_counts():
    facts = world(report(), report(4), report(8, age=900))
    assert answer(workload(spread(1, shares=12)), facts)[0] == model.READY
    said, message = answer(workload(spread(2, shares=7)), facts)
    assert said == model.RETRY
    assert message == (
        "12 healthy shares of rdma/nic are on the nodes, and the pods ask for 14: node node-3 has "
        "no NodeReport of the last 8 minutes that can be read"
    )


def test_a_suspected_node_is_no_part_of_the_sum():
    facts = world(report(), report(), suspects=suspects(run("node-2")))
    assert answer(workload(spread(1)), facts)[0] == model.READY
    assert answer(workload(spread(2)), facts)[0] == model.RETRY


def test_flavors_and_node_selectors_choose_the_nodes_together():
    facts = world(report(0), report(), flavors={"two": {"zone": "2"}, "all": {}})
    assert answer(workload(spread(1, flavors=("all", "two"))), facts)[0] == model.READY
    one = spread(1, flavors=("all",), selector={"zone": "1"})
    assert answer(workload(one), facts)[0] == model.RETRY
    nowhere = answer(workload(spread(1, flavors=("all",), selector={"zone": "9"})), facts)
    words = "the nodes of flavor all with the job's nodeSelector"
    assert nowhere == (model.RETRY, f"the cluster has none of {words}")


def test_an_unknown_flavor_leaves_the_check_pending():
    assert answer(workload(spread(1, flavors=("later",))), WELL) is None


@pytest.mark.parametrize(("left", "state"), [(2, model.READY), (1, model.RETRY)])
def test_addresses_have_to_suffice_for_the_gang(left, state):
    more = {"networks": {"team/rail-0": "rails"}, "pools": {"rails": {"IPv4": left}}}
    facts = world(report(), report(), **more)
    asks = pods(networks=("team/rail-0", "team/foreign"))
    said, message = answer(workload(asks), facts)
    assert said == state
    short = f"IPPool rails has {left} IPv4 addresses left for 2"
    assert (message == short) == (state == model.RETRY)


def test_all_of_our_entries_are_written_and_only_pending_ones_change():
    before = (entry(), entry("own", model.READY, retry_count=2))
    first, second = entries(before, (model.READY, "well"), NOW)
    assert (first.name, first.state, first.message) == ("rails", model.READY, "well")
    assert first.last_transition_time == "2026-11-30T12:00:00Z"
    assert first.requeue_after_seconds is None
    assert second == entry("own", model.READY)


@given(st.integers(0, 10**9))
def test_the_pause_doubles_from_a_minute_to_eight(retries):
    (one,) = entries((entry(retry_count=retries),), (model.RETRY, ""), NOW)
    assert one.requeue_after_seconds == min(60 * 2 ** min(retries, 9), 480)


REPORTS = st.none() | st.builds(report, st.integers(0, 8), age=st.sampled_from([0, 480, 481]))


@given(
    st.lists(REPORTS, min_size=3, max_size=3),
    st.lists(st.tuples(st.sampled_from(NODES), st.integers(1, 3)), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_ready_means_that_each_node_is_known_to_have_what_its_pods_ask_for(reports, places, shares):
    sets = [WaitingPods(n, {NIC: shares}, hosts={host: n}) for host, n in places]
    asked = {host: sum(n for at, n in places if at == host) * shares for host, _ in places}
    known = dict(zip(NODES, reports, strict=True))
    suffices = all(
        (one := known[host]) is not None and one.age(NOW) <= 480 and one.pools[0].healthy >= count
        for host, count in asked.items()
    )
    said, _ = answer(workload(*sets), world(*reports))
    assert said == (model.READY if suffices else model.RETRY)


@given(st.text(), st.text(max_size=600), st.text(), st.text())
def test_no_text_of_others_is_long_or_unprintable_in_a_message(host, card, flavor, resource):
    facts = world(report(0, ill=(card,)), report(0, ill=(card,)), flavors={flavor: {}})
    asks = {NIC: 1, f"rdma/{resource}": 1}
    sets = (pods((host, "node-1"), resources=asks), spread(99, flavors=(flavor,)))
    for _, message in (
        answer(workload(*sets), facts),
        answer(workload(spread(0, flavors=(flavor,))), facts),
    ):
        assert len(message) <= 512
        assert message.isprintable()


def test_of_many_nodes_without_reports_few_are_named():
    hosts = [f"node-{at}" for at in range(10_000)]
    said = answer(workload(pods(hosts)), world())[1]
    assert len(said) <= 512
    assert said.count("has no NodeReport") <= rules.MOST_PROBLEMS


def lines_run(many):
    """How many lines of Python it takes to answer so many jobs, after as many measurements."""
    hosts = [f"node-{at}" for at in range(100)]
    reports, labels = dict.fromkeys(hosts, report()), {host: {} for host in hosts}
    runs = [run(hosts[at % 30], namespace=f"team-{at % 7}", hours=2) for at in range(many)]
    jobs = [
        model.WaitingWorkload(f"team-{at % 7}", f"job-{at}", "u", "7", (entry(),), (one,))
        for at in range(many)
        for one in (pods(hosts[at % 98 : at % 98 + 2]) if at % 2 else spread(1),)
    ]
    count = 0

    def trace(_frame, event, _arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        suspects_now = suspected(runs, NOW)
        seen = RailsWorld(NOW, "kube-rdma", reports, labels, suspects=suspects_now)
        said = [answer(job, seen) for job in jobs]
    finally:
        sys.settrace(before)
    assert {state for state, _ in said} == {model.READY, model.RETRY}
    return count


def test_ten_times_as_many_jobs_cost_ten_times_as_much():
    assert lines_run(1000) < 12 * lines_run(100)
