"""What `status`, `top`, `explain` and `doctor` show of 64 nodes with 8 cards, at 80 columns.

Each page goes through the views that the commands use. A page of a node, or of a pod, has 8 cards.
"""

from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.doctor.views import doctor_page
from kube_rdma.explain.views import explain_page
from kube_rdma.lib.page import page_text
from kube_rdma.metrics.rules.throughput import busiest
from kube_rdma.metrics.views import nodes_page, pods_page
from kube_rdma.model import explain, reports
from kube_rdma.model.card import CardId
from kube_rdma.model.device import PhysicalState, PortState
from kube_rdma.model.finding import NotSeen
from kube_rdma.model.kubernetes import NodeState
from kube_rdma.model.metrics import TrafficKey, TrafficRate, TrafficTotals
from kube_rdma.reports.rules.cluster import findings
from kube_rdma.reports.views import status_page
from tests.kit.golden import assert_golden
from tests.unit.doctor.rules.healthy import HEALTHY, LINKS, SURVEY, card

PAGES = Path(__file__).with_name("pages_of_512_cards.txt")
WIDTH, HEIGHT = 80, 48
CABLE = "no port is ACTIVE; port 1 is DOWN (Polling)"
NODES = tuple(f"node-{number}" for number in range(1, 65))
IMAGE = "registry.example.com/rdma/kube-rdma:0.1.0"
GIGABIT = 125_000_000.0


def cluster(ill=(), *, away=(), **parts):
    """A cluster whose `ill` are cards as (node, rail); agents of the nodes `away` do not run."""
    pods = [
        reports.ProgramPod("kube-rdma/kube-rdma-agent", "kube-rdma", f"agent-{n}", name, ready=True)
        for n, name in enumerate(NODES)
    ]
    pods = [replace(one, ready=one.node not in away, why=why(one, away)) for one in pods]
    ready = len(NODES) - len(away)
    return reports.ClusterFacts(
        nodes=tuple(
            NodeState(
                name,
                allocatable=tuple(
                    (f"rdma/rail{rail}", 0 if (name, rail) in ill else 16) for rail in range(8)
                ),
                ready=True,
            )
            for name in NODES
        ),
        workloads=(
            reports.Workload(
                reports.ProgramRole.AGENT,
                "kube-rdma",
                "kube-rdma-agent",
                64,
                ready,
                64,
                IMAGE,
                reports=True,
            ),
            reports.Workload(
                reports.ProgramRole.CONTROLLER, "kube-rdma", "kube-rdma-controller", 2, 2, 2, IMAGE
            ),
        ),
        pods=tuple(pods),
        reports={name: report(name, ill) for name in NODES},
        pools=tuple(
            reports.AddressPool(f"rail-{n}", f"10.{n}.0.0/20", "64", "4030") for n in range(8)
        ),
        waiting=(),
        events=(),
        guarded=True,
        **parts,
    )


def why(pod, away):
    return "CrashLoopBackOff: back-off 10s" if pod.node in away else ""


def report(node, ill):
    cards = tuple(
        reports.ReportedCard(
            CardId(f"0000:{0x10 + rail:02x}:00.0"),
            f"mlx5_{rail}",
            (f"rdma/rail{rail}",),
            reasons=(CABLE,) if (node, rail) in ill else (),
        )
        for rail in range(8)
    )
    pools = tuple(
        reports.ReportedPool(
            f"rdma/rail{rail}", "shared-multi", 16, 0 if (node, rail) in ill else 16, 1
        )
        for rail in range(8)
    )
    return reports.NodeReport("0.1.0", cards, (), pools)


def status(facts, **how):
    return page_text(status_page(facts, findings(facts), **how), WIDTH)


def ports(down=()):
    """Ports of all nodes; a few are busy."""
    for place, node in enumerate(NODES):
        for rail in range(8):
            received = 0.0 if place % 16 else (40 + place + rail) * GIGABIT
            state = 1 if (node, rail) in down else 4
            errors = {"out_of_sequence": 12.0} if (node, rail) == ("node-17", 3) else {}
            totals = TrafficTotals(link=100 * GIGABIT, state=state)
            key = TrafficKey(f"mlx5_{rail}", "1")
            yield TrafficRate(node, key, totals, received, received / 2, errors)


def of_pods():
    for row in ports():
        key = replace(
            row.key,
            namespace="a-namespace-of-a-team",
            pod=f"training-of-a-model-worker-{row.node[5:]}",
            container="trainer",
        )
        yield replace(row, key=key)


def explanation():
    """A pod with eight rails, IPv6 as well."""
    rails = range(8)
    return explain.Explanation(
        "train/worker-0",
        "node-17",
        "Running",
        "",
        (explain.ExplainedAsk("main", "rdma/nic", 8, "eight cards of node-17"),),
        tuple(
            explain.ExplainedNetwork(
                f"net{n + 1}", f"train/rail-{n}", f"macvlan on the card of rail {n}"
            )
            for n in rails
        ),
        (),
        tuple(
            explain.ExplainedShare(
                "rdma/nic", f"0000:{0x10 + n:02x}:00.0", f"mlx5_{n}", "main", f"{n}-3"
            )
            for n in rails
        ),
        (),
        None,
        tuple(
            explain.SeenInterface(
                f"net{n + 1}",
                addresses=(f"10.{n}.0.5/20", f"fd00:10:{n}::5/64"),
                mtu=9000,
                device=f"mlx5_{n}",
                gid=f"0000:0000:0000:0000:0000:ffff:0a0{n}:0005",
                gid_index=3,
            )
            for n in rails
        ),
        (("main", tuple(f"uverbs{n}" for n in rails)),),
        (),
        (),
        (),
        interfaces_from=explain.SeenFrom.POD,
        device_nodes_from=explain.SeenFrom.POD,
    )


def node_of_eight(*, down):
    """A node whose cards have no signal."""
    functions, devices = zip(*(card(n, 0x81 + n) for n in range(8)), strict=True)
    if down:
        devices = tuple(
            replace(
                one,
                ports=(
                    replace(
                        one.ports[0], state=PortState.DOWN, physical_state=PhysicalState.POLLING
                    ),
                ),
            )
            for one in devices
        )
        functions = tuple(
            replace(one, netdevs=tuple(replace(net, carrier=False) for net in one.netdevs))
            for one in functions
        )
    survey = replace(SURVEY, devices=devices, functions=functions)
    links = tuple(
        replace(LINKS[0], name=f"eth{n}", pci=one.position.pci, addresses=(f"10.{n}.0.1/16",))
        for n, one in enumerate(functions)
    )
    return replace(HEALTHY, survey=survey, links=links, routes=None)


def doctor(seen):
    return page_text(doctor_page(seen, diagnose(seen)), WIDTH)


BAD = (("node-17", 3),)
LEAF = tuple((node, 6) for node in NODES[:32])
TWELVE = NODES[10:22]
RUNS = {
    "status: all is well": lambda: status(cluster()),
    "status: a bad card": lambda: status(cluster(BAD)),
    "status: a bad card, problems only": lambda: status(cluster(BAD), problems_only=True),
    "status: one rail of 32 nodes": lambda: status(cluster(LEAF), problems_only=True),
    "status: agents of 12 nodes do not run": lambda: status(cluster(away=TWELVE)),
    "status: all is well, as far as it is seen": lambda: status(
        cluster(not_seen=(NotSeen("Events", "the API server forbids to list events"),)),
        problems_only=True,
    ),
    "top nodes": lambda: page_text(nodes_page(busiest(ports(LEAF)), {}, 20), WIDTH),
    "top pods": lambda: page_text(pods_page(busiest(of_pods()), {}, 20), WIDTH),
    "explain": lambda: page_text(explain_page(explanation()), WIDTH),
    "doctor: no card has a signal": lambda: doctor(node_of_eight(down=True)),
}


def page(name):
    return f"== {name}\n{RUNS[name]()}\n"


def test_the_pages_are_those_that_were_looked_at():
    assert_golden(PAGES, "\n".join(map(page, RUNS)))


@pytest.mark.parametrize("name", RUNS)
def test_a_page_fits_on_a_terminal(name):
    lines = RUNS[name]().splitlines()
    assert [line for line in lines if len(line) > WIDTH] == []
    assert len(lines) < HEIGHT
