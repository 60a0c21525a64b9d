"""`kube-rdma status` from the outside, against an API server in memory."""

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from click.testing import CliRunner

from kube_base.errors import Unavailable
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.adapters.cluster.kinds.pod import DAEMON_SETS, DEPLOYMENTS, POD
from kube_rdma.cli.status import status
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.lib.schema import structural
from kube_rdma.model.card import CardId
from kube_rdma.model.preflight import REQUEST
from kube_rdma.model.reports import NodeReport, ReportedCard, ReportedPool
from kube_rdma.operator.cluster import NIC_CLUSTER_POLICY
from kube_rdma.operator.documents.nic_cluster_policy import NicClusterPolicyObject
from kube_rdma.reports import cluster as objects
from kube_rdma.reports import gather
from kube_rdma.reports.node_report import report_status
from kube_rdma.verify.cluster import BANDWIDTH_CHECK
from kube_rdma_testing.cluster.server import FakeServer
from tests.kit.opener import opener_of

KINDS = (
    *(DAEMON_SETS, DEPLOYMENTS, objects.EVENT, objects.BINDING),
    *(NODE_REPORT, IP_POOL, NIC_CLUSTER_POLICY, DEFINITION, BANDWIDTH_CHECK),
)
NOW = "2026-01-01T00:00:00Z"
HCA = "rdma/hca"
IMAGE = "localhost/kube-rdma:dev"
AGENT = ["agent", "--role=plugin", "--role=node"]


def meta(name, namespace="", **more):
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


def container(*args, **more):
    return {"containers": [{"image": IMAGE, "args": list(args), **more}]}


class World:
    """Two nodes with healthy agents, a controller, a pool, a policy, and the command."""

    def __init__(self):
        self.server = FakeServer(KINDS)
        counts = {"desiredNumberScheduled": 2, "numberReady": 2, "updatedNumberScheduled": 2}
        self.workload(DAEMON_SETS, "agent", AGENT, counts)
        counts = {"readyReplicas": 1, "updatedReplicas": 1}
        self.workload(DEPLOYMENTS, "controller", ["controller"], counts)
        self.program_pod("controller-0", "controller", "node-1")
        for number in (1, 2):
            self.node(f"node-{number}")
            self.program_pod(f"agent-{number}", "agent", f"node-{number}")
            self.report(f"node-{number}")
        self.pool()
        self.policy("ready", "")
        self.server.put(objects.BINDING, {"metadata": meta(objects.GUARD)})

    def workload(self, kind, name, args, counts, **more):
        labels = {"name": name}
        spec = {"template": {"spec": container(*args)}, "selector": {"matchLabels": labels}} | more
        self.server.put(kind, {"metadata": meta(name, "kr"), "spec": spec, "status": counts})

    def node(self, name, shares="1k"):
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
        status = {"allocatable": {HCA: shares}, "conditions": ready}
        document = {"metadata": meta(name), "spec": {}, "status": status}
        self.server.put(NODE, document)

    def program_pod(self, name, workload, node, **state):
        states = [{"ready": not state, "restartCount": 3, "state": state}]
        document = {
            "metadata": meta(name, "kr", labels={"name": workload}),
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "containerStatuses": states},
        }
        self.server.put(POD, document)

    def report(self, node, *reasons, healthy=1000):
        card = ReportedCard(CardId("0000:81:00.0"), "mlx5_0", (HCA,), reasons=reasons)
        pool = ReportedPool(HCA, "hca", 1000, healthy, 1)
        made = report_status(None, NodeReport("0.1.0", (card,), (), (pool,)), NOW)
        document = {"metadata": meta(node), "status": msgspec.to_builtins(made)}
        self.server.put(NODE_REPORT, document)

    def pool(self, **more):
        conditions = [
            {"type": kind, "reason": "A", "lastTransitionTime": NOW, **words}
            for kind, words in more.items()
        ]
        made = {"ranges": "10.0.0.0/24", "used": "32", "free": "222", "conditions": conditions}
        spec = {"ranges": "not what it should be"}
        self.server.put(IP_POOL, {"metadata": meta("train"), "spec": spec, "status": made})

    def policy(self, state, reason):
        document = {
            "metadata": meta("policy", "kr"),
            "spec": {},
            "status": {"state": state, "reason": reason},
        }
        self.server.put(NIC_CLUSTER_POLICY, document)

    def waiting_pod(self, name, annotations=None, *, sidecar=False, **limits):
        spec = container(resources={"limits": limits})
        if sidecar:
            spec = {**container(), "initContainers": spec["containers"]}
        document = {
            "metadata": meta(name, "default", annotations=annotations or {}),
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        self.server.put(POD, document)

    def event(self, kind, name, reason, message, **more):
        namespace = "default" if kind == "Pod" else ""
        about = {"kind": kind, "name": name, "namespace": namespace}
        document = {
            "metadata": meta(f"{name}.{reason}", "default"),
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "lastTimestamp": NOW,
            **more,
        }
        self.server.put(objects.EVENT, document)

    def run(self, *words):
        return CliRunner().invoke(status, [*words], obj=opener_of(self.server))

    def codes(self):
        """What is wrong, as a program reads it."""
        result = self.run("-o", "json")
        document = json.loads(result.stdout)
        assert (result.exit_code == 1) is (document["health"] == "problems")
        return {each["code"]: each for each in document["problems"]}


@pytest.fixture
def world():
    return World()


WELL = """\
   PROGRAM     NAME           READY  IMAGE
✓  agent       kr/agent       2/2    localhost/kube-rdma:dev
✓  controller  kr/controller  1/1    localhost/kube-rdma:dev

   NODE    AGENT  CARDS  SHARES HEALTHY      ALLOCATABLE  MODE  VERSION
✓  node-1  ready  1/1    rdma/hca 1000/1000  1000         hca   0.1.0
✓  node-2  ready  1/1    rdma/hca 1000/1000  1000         hca   0.1.0

   POLICY     STATE
✓  kr/policy  ready

   ADDRESSES  USED  FREE  RANGES
✓  train      32    222   10.0.0.0/24

All is well.
"""


def test_a_healthy_cluster_is_one_page_and_exit_code_zero(world):
    result = world.run()
    assert (result.output, result.exit_code) == (WELL, 0)
    assert world.codes() == {}


@pytest.fixture
def ill(world):
    world.report("node-1", "no port is ACTIVE: check the cable", healthy=0)
    world.node("node-1", "0")
    return world


def test_it_says_what_is_wrong_and_what_to_do_next(ill):
    result = ill.run()
    assert result.exit_code == 1
    assert "✗  node-1  ready  0/1" in result.output
    problem, _, rest = result.output.partition("✗ CardsUnhealthy  node/node-1\n")[2].partition("\n")
    assert problem == ("    0 of 1 cards can be used. mlx5_0: no port is ACTIVE: check the cable.")
    assert rest.startswith("    → Do what the reason says")
    assert result.output.endswith("1 problem.\n")


def test_an_agent_that_crashes_is_named_with_its_reason(world):
    crash = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    world.program_pod("agent-1", "agent", "node-1", waiting=crash)
    assert world.codes()["AgentNotReady"]["sentence"] == (
        "The agent kr/agent-1 is not ready: CrashLoopBackOff: back-off 10s"
    )


def test_a_report_without_an_agent_is_old(world):
    world.server.remove(POD, "agent-2", "kr")
    assert world.codes()["AgentMissing"]["about"] == "node/node-2"


def test_where_all_agents_are_gone_their_reports_are_no_health(world):
    """One problem for all nodes, and no node is marked as well."""
    world.server.remove(DAEMON_SETS, "agent", "kr")
    assert set(world.codes()) == {"NoAgent"}
    assert "✗  node-1  missing  1/1" in world.run().output


def test_pools_and_policies_that_are_not_well_say_so(world):
    full = {"status": "True", "message": "250 of 254 IPv4 addresses are held"}
    world.pool(NearlyFull=full, Ready={"status": "False", "message": "it overlaps other"})
    world.policy("error", "spec.devicePlugin.config, line 1: no")
    codes = world.codes()
    assert set(codes) == {"AddressPoolNearlyFull", "AddressPoolBroken", "PolicyNotReady"}
    assert "line 1" in codes["PolicyNotReady"]["sentence"]


def test_a_policy_that_no_operator_has_looked_at_is_named(world):
    """Though the API server gives it a status by its definition, where the state has a default."""
    schema = structural(NicClusterPolicyObject)["properties"]["status"]["properties"]
    defaults = {name: part["default"] for name, part in schema.items() if "default" in part}
    assert defaults == {"observedGeneration": -1, "state": "notReady"}
    document = {"metadata": meta("policy", "kr", generation=1), "spec": {}, "status": defaults}
    world.server.put(NIC_CLUSTER_POLICY, document)
    assert set(world.codes()) == {"PolicyNotSeen"}
    document = {**document, "status": {**defaults, "observedGeneration": 1}}
    world.server.put(NIC_CLUSTER_POLICY, document)
    assert set(world.codes()) == {"PolicyNotReady"}


@pytest.mark.parametrize("sidecar", [False, True])
def test_pods_that_wait_for_shares_or_networks_are_named(world, sidecar):
    world.waiting_pod("hungry", sidecar=sidecar, **{HCA: "1"})
    short = "0/2 nodes are available: 2 Insufficient rdma/hca."
    world.event("Pod", "hungry", "FailedScheduling", short)
    world.waiting_pod("lonely", {"k8s.v1.cni.cncf.io/networks": "net"})
    failed = 'plugin type="kube-rdma" failed (add): no such network'
    world.event("Pod", "lonely", "FailedCreatePodSandBox", failed)
    world.event("Pod", "ended", "FailedScheduling", short)
    assert {code: each["about"] for code, each in world.codes().items()} == {
        "PodWaitsForShares": "pod/default/hungry",
        "PodWaitsForNetworks": "pod/default/lonely",
    }


@pytest.mark.parametrize(
    ("resource", "what", "code"),
    [
        ("events", "Events", 0),
        ("nodereports", "NodeReport", 6),
        ("ippools", "IPPool", 0),
        ("nodes", "nodes", 6),
        ("daemonsets", "DaemonSets and Deployments", 6),
    ],
)
def test_a_missing_right_is_one_sentence_and_the_rest_is_shown(world, resource, what, code):
    """With the rule to ask for; exit code 6 where too little is left to tell."""
    world.server.forbidden.add(("list", resource))
    result = world.run()
    assert result.exit_code == code
    squeezed = " ".join(result.output.split())
    assert f"? Not read: {what}. the API server forbids to list {resource}" in squeezed
    assert f'resources: ["{resource}"]' in squeezed
    assert "kr/policy" in result.output
    assert "All is well" not in result.output
    assert result.output.endswith("No problem in what could be read; 1 part could not be read.\n")


def test_a_node_that_is_lost_has_an_old_report(world):
    lost = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": ""}]
    status = {"allocatable": {HCA: "1k"}, "conditions": lost}
    world.server.put(NODE, {"metadata": meta("node-2"), "spec": {}, "status": status})
    assert world.codes()["NodeNotReady"]["about"] == "node/node-2"


def test_networks_and_pools_with_a_default_route_are_advice(world):
    """By their objects; one that nobody understands is passed over."""
    ipam = {"type": "host-local", "subnet": "10.9.0.0/24"}
    texts = {
        "plain": json.dumps({"type": "macvlan", "ipam": ipam}),
        "routed": json.dumps({"type": "macvlan", "ipam": {**ipam, "routes": [{"dst": "::/0"}]}}),
        "garbled": "{",
    }
    for name, text in texts.items():
        document = {"metadata": meta(name, "team"), "spec": {"config": text}}
        world.server.put(DEFINITION, document)
    spec = {"ranges": [{"subnet": "fd00::/64", "gateway": "fd00::1"}], "routes": [{"dst": "::/0"}]}
    world.server.put(IP_POOL, {"metadata": meta("rail-0"), "spec": spec})
    shown = json.loads(world.run("-o", "json").stdout)
    told = [(each["code"], each["about"], each["advice"]) for each in shown["problems"]]
    assert told == [
        ("DefaultRoute", "ippool/rail-0", True),
        ("DefaultRoute", "network/team/routed", True),
    ]
    assert shown["health"] == "healthy"


def test_kinds_that_are_not_installed_are_no_problem(world):
    """A cluster without policies and pools is well; without reports little is known of it."""
    world.server = FakeServer(KINDS[:4])
    labels = {"desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1}
    world.workload(DAEMON_SETS, "agent", AGENT, labels)
    world.node("node-1")
    world.program_pod("agent-1", "agent", "node-1")
    codes = world.codes()
    assert set(codes) == {"ReportsNotInstalled", "AdmissionPolicyMissing"}
    assert all(each["advice"] for each in codes.values())
    shown = world.run()
    assert shown.exit_code == 6
    assert "No problem in what could be read; no agent reports cards and pools." in shown.output


@pytest.mark.parametrize(
    ("bound", "codes"),
    [
        ((objects.GUARD,), set()),
        ((f"kr.{objects.GUARD}",), set()),
        ((f"kr.rdma-a.{objects.GUARD}",), set()),
        ((f"rdma-a.kr.{objects.GUARD}",), {"AdmissionPolicyMissing"}),
        ((f"other.{objects.GUARD}",), {"AdmissionPolicyMissing"}),
        ((), {"AdmissionPolicyMissing"}),
    ],
)
def test_each_namespace_with_agents_needs_a_policy_that_holds_them(world, bound, codes):
    """That of its own installation, or the one for all; another installation's is none."""
    world.server.remove(objects.BINDING, objects.GUARD)
    for name in bound:
        world.server.put(objects.BINDING, {"metadata": meta(name)})
    assert set(world.codes()) == codes


def test_a_preflight_without_its_policy_is_told(world):
    """A waiting pod asks; the policy of a release with a name of its own counts."""
    asks = {REQUEST: "ring"}
    document = {"metadata": meta("a", "team", annotations=asks), "status": {"phase": "Pending"}}
    world.server.put(POD, document)
    assert world.codes()["PreflightPolicyMissing"]["advice"]
    world.server.put(objects.BINDING, {"metadata": meta(f"rdma-a.{objects.MEASURED}")})
    assert world.codes() == {}


def test_without_an_api_server_nobody_can_tell():
    @asynccontextmanager
    async def opener(_):
        raise Unavailable("The API server does not answer.")
        yield

    result = CliRunner().invoke(status, obj=opener)
    assert str(result.exception) == "The API server does not answer."


def test_a_wait_ends_with_the_last_look_when_the_time_is_over(world):
    world.report("node-1", "no port is ACTIVE: check the cable", healthy=0)
    world.node("node-1", "0")
    result = world.run("--wait", "--timeout", "1s")
    assert result.exit_code == 1
    assert "CardsUnhealthy  node/node-1" in result.output


def test_a_time_that_is_none_is_refused(world):
    result = world.run("--wait", "--timeout", "soon")
    assert result.exit_code == 2
    assert "'soon' is not a time" in result.output


def test_as_json_it_has_all_that_the_table_has(world):
    document = json.loads(world.run("-o", "json").output)
    assert document["health"] == "healthy"
    (node, _) = document["nodes"]
    assert node["report"]["pools"][0] | {"allocatable": 1000} == node["report"]["pools"][0]
    assert node["agents"][0]["ready"]
    assert [each["role"] for each in document["programs"]] == ["agent", "controller"]
    assert document["addressPools"][0]["free"] == "222"


def test_the_cards_of_all_nodes_are_drawn_beside_the_page(tmp_path):
    file = tmp_path / "cards.svg"
    world = World()
    plain = world.run()
    result = world.run("--svg", str(file))
    assert (result.exit_code, result.stdout) == (plain.exit_code, plain.stdout)
    assert "2 nodes" in file.read_text()


def test_a_picture_that_cannot_be_written_is_said_before_the_cluster_is_asked(tmp_path):
    result = CliRunner().invoke(status, ["--svg", str(tmp_path / "nowhere/cards.svg")])
    assert isinstance(result.exception, FileNotFoundError)


def test_what_is_waited_for_is_what_counts(ill):
    """A card that is known to be ill keeps nobody who waits for agents."""
    assert ill.run("--wait-for", "agents", "--timeout", "30s").exit_code == 0
    assert ill.run("--wait-for", "cards", "--timeout", "0.1s").exit_code == 1
    assert ill.run("--wait", "--timeout", "0.1s").exit_code == 1


def test_a_page_is_shown_again_when_it_differs_and_the_last_look_counts(ill, monkeypatch):
    monkeypatch.setattr(gather, "WATCH_SECONDS", 0.0)
    counts = iter(range(100))

    async def take(cluster):
        match next(counts):
            case 2:
                ill.report("node-1")
                ill.node("node-1")
            case 3:
                raise Unavailable("the API server does not answer")
            case 5:
                raise KeyboardInterrupt
        return await read(cluster)

    read = gather.take
    monkeypatch.setattr(gather, "take", take)
    result = ill.run("--watch")
    assert (result.stdout.count("PROGRAM"), result.exit_code) == (2, 0)
    assert result.stdout.endswith(WELL)
    assert "does not answer" in result.stderr


@pytest.mark.parametrize("words", ["--wait", "--wait-for=all", "--svg=x", "-ojson"])
def test_a_watch_shows_pages_alone(world, words):
    assert world.run("--watch", words).exit_code == 2


def test_a_controller_without_one_of_its_copies_has_the_mark_of_its_advice(world):
    counts = {"readyReplicas": 1, "updatedReplicas": 2}
    world.workload(DEPLOYMENTS, "controller", ["controller"], counts, replicas=2)
    page = world.run().stdout
    assert "!  controller  kr/controller  1/2" in page
    assert "! ControllerNotReady" in page
    assert page.endswith("All is well. 1 piece of advice.\n")


def test_the_age_of_reports_is_told_and_one_that_is_old_is_a_problem(world):
    now = datetime.now(UTC)
    for node, minutes in (("node-1", 3.5), ("node-2", 30)):
        (stored,) = (
            d for d in world.server.documents("nodereports") if d["metadata"]["name"] == node
        )
        renewed = (now - timedelta(minutes=minutes)).isoformat()
        world.server.put(
            NODE_REPORT, stored | {"status": stored["status"] | {"renewTime": renewed}}
        )
        page = world.run().stdout
    assert "Reports are at most 31 min old." in page
    assert "✗ ReportOld  node/node-2\n    Its report is 30 min old and its agent runs" in page
    assert "ReportOld  node/node-1" not in page
