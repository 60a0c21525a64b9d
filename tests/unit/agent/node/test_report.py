"""The report of a node: as its last look was, written when it changes, back when it is deleted."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from kube_base.frozen import replace
from kube_client.calls import RequestTiming
from kube_client.objects import Cluster
from kube_client.watching import Synced
from kube_rdma.adapters.cluster.kinds.node import NODE
from kube_rdma.adapters.cluster.kinds.own import NODE_REPORT
from kube_rdma.agent.node import report
from kube_rdma.agent.node.report import NodeReporter
from kube_rdma.fabric.neighbours import Neighbours
from kube_rdma.hardware.error_counters import CardErrors
from kube_rdma.model.device import PortState
from kube_rdma.model.reports import BurnInReceipt
from kube_rdma.repair.cluster import write_receipt
from kube_rdma.reports.node_keeper import WritePace, pause
from kube_rdma.reports.node_report import NodeReports
from kube_rdma_testing.cluster.server import FakeServer
from kube_rdma_testing.kernel.lldp import FakeLldp
from tests.kit.lldp import SWITCH, frame
from tests.unit.agent.world import NODE_NAME, VKE, World, hard_card, until

CARDS = [hard_card(n) for n in range(4)]
AT_ONCE = WritePace(after=lambda *_: 0.0)
EAGER = RequestTiming(pause=lambda _: 0.0)


class ReportWorld(World):
    """A node whose API server knows reports, or (None) does not."""

    def serve(self, *kinds):
        """Another API server from now on, with the Node object."""
        self.server = FakeServer(kinds)
        self.label("shared")

    @property
    def stored(self):
        return next(iter(self.server.documents("nodereports")), None)

    @property
    def status(self):
        return (self.stored or {}).get("status", {})

    @property
    def summary(self):
        return self.status.get("summary", {})

    def condition(self, kind):
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    @property
    def writes(self):
        requests = [request for line in self.server.lines for request in line.requests]
        return sum(r.plural == "nodereports" and r.verb not in {"list", "watch"} for r in requests)

    def reporting(self, config=None, line=None, pace=AT_ONCE):
        cluster = Cluster(line or self.server.line(), EAGER)
        reporter = NodeReporter(NodeReports(cluster, NODE_NAME), pace)
        return replace(self.dependencies(config), keepers=(reporter,))

    @asynccontextmanager
    async def serving(self, dependencies):
        """As ever, from the moment on when the kubelet lists what the agent registered."""
        async with super().serving(dependencies) as task:
            await self.kubelet.until(lambda: any(self.kubelet.devices.values()))
            yield task


@pytest.fixture
def world(tmp_path_factory):
    world = ReportWorld(tmp_path_factory.mktemp("w"), *CARDS)
    world.serve(NODE_REPORT)
    return world


async def test_a_node_says_what_it_has_and_a_rest_writes_nothing(world):
    """Cards, ports, pools; the Node owns the object, so that it goes with it."""
    async with world.serving(world.reporting()):
        await until(lambda: world.summary.get("healthy") == 4)
        assert world.stored["metadata"]["name"] == NODE_NAME
        (node,) = world.server.documents("nodes")
        (owner,) = world.stored["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
        card = world.status["cards"][0]
        assert (card["name"], card["resources"]) == ("mlx5_0", [VKE])
        assert card["ports"][0] | {"state": "ACTIVE", "rate": "100G"} == card["ports"][0]
        (pool,) = world.status["pools"]
        assert (pool["resource"], pool["mode"]) == (VKE, "shared")
        assert pool["shares"] == pool["healthy"] > 0
        writes = world.writes
        await world.again(3)
        assert world.writes == writes


async def test_a_card_that_fails_or_goes_shows_with_its_reason(world):
    """And its return shows too, with the time of the transition."""
    async with world.serving(world.reporting()):
        await until(lambda: world.condition("Ready").get("status") == "True")
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: world.summary["healthy"] == 3)
        assert world.summary["problems"].startswith("mlx5_1: no port is ACTIVE")
        assert world.condition("CardsHealthy")["reason"] == "CardsUnhealthy"
        assert world.condition("ConfigurationApplied")["status"] == "True"
        world.change(*CARDS[:3])
        world.functions(*world.survey.functions[:3])
        world.change(*CARDS[:3])
        await until(
            lambda: [c["name"] for c in world.status["cards"] if c.get("gone")] == ["mlx5_3"]
        )


async def test_a_deleted_or_edited_report_comes_again(world):
    async with world.serving(world.reporting()):
        await until(lambda: world.summary.get("healthy") == 4)
        world.server.remove(NODE_REPORT, NODE_NAME)
        await until(lambda: world.summary.get("healthy") == 4)
        world.server.put(NODE_REPORT, world.stored | {"status": {"agentVersion": "mine"}})
        await until(lambda: world.summary.get("healthy") == 4)


async def test_the_receipt_of_the_controller_stays_and_causes_no_write(world):
    receipt = BurnInReceipt("2026-11-30T12:00:00Z", "cards", "All is well.")
    async with world.serving(world.reporting()):
        await until(lambda: world.summary.get("healthy") == 4)
        writes = world.writes
        await write_receipt(Cluster(world.server.line(), EAGER), NODE_NAME, receipt)
        await world.again(3)
        assert world.writes == writes + 1
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: world.summary["healthy"] == 3)
        assert world.status["receipt"]["result"] == receipt.result
        again = BurnInReceipt(receipt.time, receipt.policy, "Not well.")
        await write_receipt(Cluster(world.server.line(), EAGER), NODE_NAME, again)
        assert (world.status["receipt"]["result"], world.summary["healthy"]) == ("Not well.", 3)


async def test_a_switch_port_is_reported_and_a_flood_of_forged_ones_writes_little(world):
    """The world has four cards with the interfaces eth0 to eth3."""
    kernel = FakeLldp(f"eth{n}" for n in range(4))
    dependencies = replace(world.reporting(), neighbours=Neighbours(kernel.opened, lambda _: {}))

    def port(number):
        return world.status["cards"][number]["ports"][0]

    async with world.serving(dependencies):
        await until(lambda: len(kernel.sockets) == 4 and world.summary.get("healthy") == 4)
        kernel.send("eth0", frame())
        await until(lambda: "neighbour" in port(0))
        assert port(0)["neighbour"] == {
            "switch": "leaf-1",
            "port": "Ethernet1/1",
            "chassis": SWITCH.hex(":"),
        }
        assert "unheard" not in port(0) | port(1)
        writes = world.writes
        for number in range(4096):
            kernel.send("eth1", frame(f"leaf-{number}"))
            if number % 16 == 0:
                await asyncio.sleep(0)
        await until(lambda: "contradict each other" in port(1).get("unheard", ""))
        await world.again(3)
        assert world.writes - writes <= 4


class Lists(NodeReports):
    """Reports whose watch was in an outage whenever something changed: it brings lists alone."""

    lists: asyncio.Queue[Synced]

    async def watch(self):
        while True:
            yield await self.lists.get()


async def test_what_a_list_does_not_show_is_written_again_though_it_was_answered(world):
    """Definitions that went twice: the report came and went while the agent's watch was cut."""
    lists = asyncio.Queue()
    reporter = NodeReporter(Lists(Cluster(world.server.line(), EAGER), NODE_NAME, lists), AT_ONCE)
    async with world.serving(replace(world.dependencies(None), keepers=(reporter,))):
        lists.put_nowait(Synced())
        await until(lambda: world.summary.get("healthy") == 4)
        world.server.remove(NODE_REPORT, NODE_NAME)
        lists.put_nowait(Synced())
        await until(lambda: world.summary.get("healthy") == 4)


async def test_a_node_that_is_made_anew_owns_its_report_anew(world):
    async with world.serving(world.reporting()):
        await until(lambda: world.summary.get("healthy") == 4)
        world.server.remove(NODE, NODE_NAME)
        world.label("shared")
        (node,) = world.server.documents("nodes")
        uid = node["metadata"]["uid"]
        await until(
            lambda: [o["uid"] for o in world.stored["metadata"]["ownerReferences"]] == [uid]
        )


async def test_without_the_kind_one_line_says_so_and_all_else_goes_on(world, recording):
    """When it is installed the report appears."""
    world.serve()
    async with world.serving(world.reporting()):
        await world.kubelet.until(lambda: world.kubelet.healthy(VKE) > 0)
        await until(lambda: recording.of("node report not written"))
        await world.again(3)
        (warning,) = recording.of("node report not written")
        assert "nodereports.kube-rdma.io" in warning["why"]
        world.server.add(NODE_REPORT)
        await until(lambda: world.summary.get("healthy") == 4)


PATIENT = WritePace(after=lambda *_: 1000.0, again=0.0)


async def test_a_definition_that_is_deleted_and_made_anew_brings_the_report_back_soon(
    world, recording
):
    """Not when the pause after a refusal is over, which is minutes: it was there before."""
    async with world.serving(world.reporting(pace=PATIENT)):
        await until(lambda: world.summary.get("healthy") == 4)
        world.server.uninstall(NODE_REPORT, seen=True)
        await until(lambda: recording.of("node report not written"))
        world.server.add(NODE_REPORT)
        await until(lambda: world.summary.get("healthy") == 4)


async def test_an_agent_with_the_rights_of_before_serves_and_says_once_what_it_lacks(
    world, recording
):
    world.server.forbidden.add(("patch", "nodereports/status"))
    async with world.serving(world.reporting()):
        await until(lambda: world.writes > 3)
        (warning,) = recording.of("node report not written")
        assert 'resources: ["nodereports/status"], verbs: ["patch"]' in warning["why"]
        world.server.forbidden.clear()
        await until(lambda: world.summary.get("healthy") == 4)
        await recording.wait_for("node report written again")


async def test_a_right_that_is_lost_and_given_back_makes_the_report_current_soon(world, recording):
    """A write and the watch are tried again soon, for they worked before."""
    async with world.serving(world.reporting(pace=PATIENT)):
        await until(lambda: world.summary.get("healthy") == 4)
        world.server.forbidden |= {("patch", "nodereports/status"), ("watch", "nodereports")}
        world.change(CARDS[0], hard_card(1, PortState.DOWN), *CARDS[2:])
        await until(lambda: recording.of("node report not written"))
        writes = world.writes
        await until(lambda: world.writes > writes)
        world.server.forbidden.clear()
        await until(lambda: world.summary["healthy"] == 3)


async def test_a_report_is_renewed_though_nothing_changes(world, monkeypatch):
    monkeypatch.setattr(report, "RENEW_SECONDS", 0.1)
    async with world.serving(world.reporting()):
        await until(lambda: world.status.get("renewTime"))
        old = world.stored | {"status": world.status | {"renewTime": "2026-01-01T00:00:00Z"}}
        world.server.put(NODE_REPORT, old)
        await until(lambda: world.status["renewTime"] > "2026-01-02")


async def test_a_card_whose_errors_go_on_is_reported_as_degraded_and_healthy_until_they_end(
    world, monkeypatch, recording
):
    """Each renewal reads the counters once, five minutes after the last one by the card's clock."""
    monkeypatch.setattr(report, "RENEW_SECONDS", 0.01)
    counted, rises = {"symbol_error": 0, "np_cnp_sent": 0}, {"symbol_error": 100}

    def ask(interface):
        for name in counted if interface == "eth1" else ():
            counted[name] += rises.get(name, 10**6)
        return dict(counted) if interface == "eth1" else {"symbol_error": 7}

    clock = iter(range(0, 10**9, 300))
    errors = CardErrors(world.folder / "no sysfs", ask, lambda: next(clock))
    reports = NodeReports(Cluster(world.server.line(), EAGER), NODE_NAME)
    keepers = (NodeReporter(reports, AT_ONCE, errors=errors),)

    def degraded():
        return {c["name"]: c["degraded"] for c in world.status.get("cards", ()) if "degraded" in c}

    async with world.serving(replace(world.dependencies(None), keepers=keepers)):
        await until(degraded)
        assert [*degraded()] == ["mlx5_1"]
        assert degraded()["mlx5_1"].startswith("symbol_error of port 1 of mlx5_1 rises by 20.0 a")
        assert not any("reasons" in card for card in world.status["cards"])
        assert world.summary["healthy"] == 4
        assert world.condition("Ready")["status"] == "True"
        rises["symbol_error"] = 0
        await until(lambda: world.status and not degraded())
        assert world.summary["healthy"] == 4


async def test_a_card_that_does_not_answer_holds_up_no_renewal(world, monkeypatch):
    monkeypatch.setattr(report, "RENEW_SECONDS", 0.01)

    class Hanging(CardErrors):
        async def read(self, wall):
            asked.append(wall)
            await asyncio.Event().wait()

    asked = []
    reports = NodeReports(Cluster(world.server.line(), EAGER), NODE_NAME)
    keepers = (NodeReporter(reports, AT_ONCE, errors=Hanging()),)
    async with world.serving(replace(world.dependencies(None), keepers=keepers)):
        await until(lambda: asked and world.writes)
        writes = world.writes
        await until(lambda: world.writes > writes + 2)
        assert len(asked) == 1


async def test_an_older_definition_is_named_and_not_tried_all_the_time(world, recording):
    """The API server refuses a report with a field of a later version, whole."""
    world.server.undefined.add(("nodereports", "pools"))
    async with world.serving(world.reporting(pace=WritePace(after=pause))):
        await until(lambda: recording.of("node report not written"))
        writes = world.writes
        await world.again(3)
        assert world.writes == writes
        (warning,) = recording.of("node report not written")
        assert ".status.pools: field not declared in schema" in warning["why"]
        assert "Install the custom resource definitions" in warning["why"]


async def test_lost_answers_of_the_api_server_end_in_the_same_report(world):
    line = world.server.line()
    line.lose = 5
    async with world.serving(world.reporting(line=line)):
        await until(lambda: world.summary.get("healthy") == 4)
        assert world.condition("Ready")["status"] == "True"


async def test_a_configuration_that_is_refused_shows_until_it_is_corrected(world, tmp_path):
    """With file and field; what runs goes on, and a correction that changes no pool shows too."""
    config = tmp_path / "config.json"
    config.write_text('{"mode": "hca"}')
    world.label(None)
    async with world.serving(world.reporting(config)):
        await until(lambda: world.summary.get("pools", "").startswith("rdma/hca"))
        config.write_text('{"mode": "hco"}')
        await until(lambda: world.condition("ConfigurationAccepted").get("status") == "False")
        assert "mode" in world.status["refusals"][0]
        assert world.summary["problems"]
        config.write_text('{"mode": "hca"}')
        await until(lambda: world.condition("Ready").get("status") == "True")


async def test_a_link_that_flaps_writes_no_more_often_than_the_pace_says(world):
    """The first change is written soon, those after it wait together."""
    pace = replace(AT_ONCE, spacing=3600.0)
    async with world.serving(world.reporting(pace=pace)):
        await until(lambda: world.summary.get("healthy") is not None)
        writes = world.writes
        for state in (PortState.DOWN, PortState.ACTIVE) * 3:
            world.change(hard_card(0, state), *CARDS[1:])
            await world.again(1)
        assert world.writes == writes
