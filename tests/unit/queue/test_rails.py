"""The controller answers Kueue's admission checks, once each, and never in doubt with Ready."""

import json

import pytest

from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.ipam.cluster import IP_POOL
from kube_rdma.model.queue import CONTROLLER
from kube_rdma.queue.cluster import ADMISSION_CHECK, RESOURCE_FLAVOR, WORKLOAD
from tests.unit.ipam.conftest import until
from tests.unit.queue.world import KINDS, KUEUE, RESERVED, QueueWorld


@pytest.fixture
def world():
    made = QueueWorld()
    made.check()
    return made


async def settled(world):
    """Wait until all that was written is seen: the last Workload has its answer."""
    name = f"fence-{len(world.writes)}"
    world.workload(name, namespace="z")
    await until(lambda: world.state(name) != "Pending")


async def test_a_job_on_well_nodes_is_ready_by_one_strict_apply(world):
    world.workload()
    version = world.server.documents("workloads")[0]["metadata"]["resourceVersion"]
    async with world.answering():
        await until(lambda: world.state() == "Ready")
        await settled(world)
    assert "on each of 2 chosen nodes" in world.answers()["rails"]["message"]
    assert world.told() == []
    first, _fence = world.writes
    assert first["metadata"]["resourceVersion"] == version
    assert set(first["status"]) == {"admissionChecks"}
    assert set(first["status"]["admissionChecks"][0]) == {
        "name",
        "state",
        "message",
        "lastTransitionTime",
    }


async def test_a_job_on_an_ill_node_waits_longer_each_time(world):
    world.report("node-2", 7, ["mlx5_3"])
    world.workload()
    again = {"state": "Pending", "retryCount": 3, "requeueAfterSeconds": 240}
    world.workload("again", checks={"rails": again})
    async with world.answering():
        await until(lambda: {world.state(), world.state("again")} == {"Retry"})
        await until(lambda: len(world.told()) == 2)
    entry = world.answers()["rails"]
    assert ("job", "RailsNotWell", f"{entry['message']}.") in world.told()
    assert entry["message"] == (
        "7 healthy shares of rdma/nic are on node node-2, and the pods ask for 8: "
        "mlx5_3: no port is ACTIVE"
    )
    assert entry["requeueAfterSeconds"] == 60
    assert world.answers("again")["rails"]["requeueAfterSeconds"] == 480


async def test_the_check_becomes_active_once(world):
    world.check("other", "example.com/other")

    def said():
        found = {d["metadata"]["name"]: d for d in world.server.documents("admissionchecks")}
        return {
            name: (one["status"], one["reason"], one["observedGeneration"])
            for name, d in found.items()
            for one in d.get("status", {}).get("conditions", ())
        }

    async with world.answering():
        await until(said)
        await settled(world)
        patched = [r for r in world.line.requests if r.plural == "admissionchecks" and r.body]
    assert said() == {"rails": ("True", "Active", 3)}
    assert [r.name for r in patched] == ["rails"]


@pytest.mark.parametrize(
    "more",
    [
        {"holds": ()},
        {"holds": (*RESERVED, "Evicted")},
        {"holds": (*RESERVED, "Finished")},
        {"checks": {"other": "Pending"}},
        {"checks": {"rails": "Retry", "other": "Pending"}},
    ],
)
async def test_a_job_that_kueue_does_not_ask_about_is_left_alone(world, more):
    """A Retry while Kueue evicts a Workload would never be taken back."""
    world.workload(**more)
    async with world.answering():
        await settled(world)
    assert len(world.writes) == 1  # of the fence


async def test_what_is_being_deleted_is_left_alone(world):
    going = {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    going |= {"deletionTimestamp": "2026-11-30T12:00:00Z", "generation": 3}
    world.put(ADMISSION_CHECK, "going", meta=going, spec={"controllerName": CONTROLLER})
    world.workload("waits", checks={"going": "Pending"})
    world.workload("goes")
    (document,) = (
        d for d in world.server.documents("workloads") if d["metadata"]["name"] == "goes"
    )
    world.server.put(WORKLOAD, {**document, "metadata": {**document["metadata"], **going}})
    async with world.answering():
        await settled(world)
    assert [world.answers("waits")["going"]["state"], world.state("goes")] == ["Pending"] * 2


async def test_an_apply_has_all_entries_of_our_own_and_no_others(world):
    world.check("second")
    world.workload(checks={"rails": "Pending", "second": "Ready", "other": "Ready"})
    async with world.answering():
        await until(lambda: world.writes)
    (entries,) = (one["status"]["admissionChecks"] for one in world.writes)
    assert {one["name"]: one["state"] for one in entries} == {"rails": "Ready", "second": "Ready"}


async def test_other_checks_are_awaited_for_they_may_make_the_nodes(world):
    world.workload(checks={"rails": "Pending", "provisioning": "Pending"})
    async with world.answering():
        await until(lambda: world.line.watching > 1)
        assert world.writes == []
        world.workload(checks={"rails": "Pending", "provisioning": "Ready"})
        await until(lambda: world.state() == "Ready")


async def test_without_kueue_it_waits_and_watches_nothing_else():
    world = QueueWorld([kind for kind in KINDS if kind not in KUEUE])
    async with world.answering():
        await until(lambda: world.line.requests)
        assert {r.plural for r in world.line.requests} == {"admissionchecks"}
        for kind in KUEUE:
            world.server.add(kind)
        world.check()
        world.workload()
        await until(lambda: world.state() == "Ready")


async def test_nothing_else_is_watched_until_a_check_names_the_controller():
    world = QueueWorld()
    world.check(controller="example.com/other")
    async with world.answering():
        await until(lambda: world.line.watching == 1)
        assert {r.plural for r in world.line.requests} == {"admissionchecks"}
        world.check("ours")
        await until(lambda: any(r.plural == "workloads" for r in world.line.requests))


async def test_without_reports_jobs_stay_pending_until_they_can_be_read(world):
    world.server.forbidden.add(("list", "nodereports"))
    world.workload()
    async with world.answering():
        await until(lambda: any(r.plural == "nodereports" for r in world.line.requests))
        assert world.state() == "Pending"
        world.server.forbidden.clear()
        await until(lambda: world.state() == "Ready")


async def test_while_a_watch_is_interrupted_jobs_stay_pending(world):
    async with world.answering() as part:
        await settled(world)
        world.server.forbidden.add(("list", "nodereports"))
        world.server.compact()
        world.line.break_watches()
        await until(world.cluster.troubles)
        world.workload()
        await until(lambda: "team/job" in part._workloads.values)
        assert await part.round()
        assert world.state() == "Pending"
        world.server.forbidden.clear()
        await until(lambda: world.state() == "Ready")


async def test_a_report_that_cannot_be_read_is_no_reason_to_start(world):
    world.put(NODE_REPORT, "node-2", status={"pools": 7})
    world.workload()
    async with world.answering():
        await until(lambda: world.state() == "Retry")
    assert "node-2 has no NodeReport of the last 8 minutes" in world.answers()["rails"]["message"]


@pytest.mark.parametrize(
    "part",
    [
        {"spec": {"podSets": [{}]}},
        {"spec": {"podSets": 7}},
        {"status": {"admissionChecks": [{"name": "rails"}]}},
        {"status": {"admission": {"podSetAssignments": 7}}},
    ],
)
async def test_a_garbled_workload_stops_no_other(world, part):
    world.put(WORKLOAD, "bad", "team", **{"spec": {}, **part})
    async with world.answering():
        await settled(world)


@pytest.mark.parametrize(
    "part",
    [
        {"podCounts": {"individual": [1]}},
        {"podCounts": {}},
        {"podCounts": {"universal": "all"}},
        {"valuesPerLevel": []},
        {"valuesPerLevel": [{"individual": 7}]},
    ],
)
async def test_a_topology_of_another_form_is_a_fault_of_its_workload(world, part):
    world.workload()
    document = world.server.documents("workloads")[0]
    of = document["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    of["slices"][0] |= part
    world.server.put(WORKLOAD, document)
    async with world.answering():
        await settled(world)
    assert world.state() == "Pending"


async def test_a_garbled_flavor_is_a_fault_of_the_workloads_that_have_it(world):
    world.put(RESOURCE_FLAVOR, "odd", spec={"nodeLabels": 7})
    world.workload("odd", None, 4, count=1, flavors={"rdma/nic": "odd"})
    async with world.answering():
        await settled(world)
    assert world.state("odd") == "Pending"


async def test_a_check_of_another_controller_is_left_alone(world):
    """Its Workloads too, and a check whose spec has another form stops no other."""
    world.check("theirs", "example.com/other")
    world.put(ADMISSION_CHECK, "bad", spec={"controllerName": 7})
    world.put(ADMISSION_CHECK, "worse", spec=7)
    world.workload("other", checks={"theirs": "Pending"})
    before = world.answers("other")
    async with world.answering():
        await settled(world)
    assert world.answers("other") == before
    checks = {one["metadata"]["name"]: one for one in world.server.documents("admissionchecks")}
    assert [name for name, one in checks.items() if "status" in one] == ["rails"]


async def test_without_chosen_nodes_those_of_the_flavor_are_judged_together(world):
    world.put(RESOURCE_FLAVOR, "gpu", spec={"nodeLabels": {"kubernetes.io/hostname": "host-1"}})
    world.workload("fits", None, 4, count=2, flavors={"rdma/nic": "gpu"})
    world.workload("large", None, 4, count=3, flavors={"rdma/nic": "gpu"})
    world.workload("unknown", None, 4, count=1, flavors={"rdma/nic": "none"})
    async with world.answering():
        await settled(world)
        assert world.state("unknown") == "Pending"
        world.put(RESOURCE_FLAVOR, "none", spec={})
        await until(lambda: world.state("unknown") == "Ready")
    ready = world.answers("fits")["rails"]
    assert ready["state"] == "Ready"
    assert "the nodes of flavor gpu together, of which Kueue has chosen none" in ready["message"]
    assert world.state("large") == "Retry"


@pytest.mark.parametrize(
    ("namespace", "hours", "state"),
    [
        ("kube-rdma", 1, "Retry"),
        ("team", 1, "Retry"),
        ("another", 1, "Ready"),
        ("kube-rdma", 25, "Ready"),
    ],
)
async def test_a_suspect_of_a_measurement_keeps_jobs_away_for_a_day(world, namespace, hours, state):
    """Of a namespace only its own jobs: everybody there may measure by limits of their own."""
    suspect = {"node": "node-2", "device": "mlx5_3"}
    world.measured("weekly", suspect, namespace=namespace, hours=hours)
    world.workload()
    async with world.answering():
        await until(lambda: world.state() == state)
    suspect = f"node node-2 is a suspect of BandwidthCheck {namespace}/weekly (mlx5_3)"
    assert (world.answers()["rails"]["message"] == suspect) == (state == "Retry")


async def test_a_pool_without_addresses_for_the_gang_keeps_it_away(world):
    ipam = {"type": "kube-rdma-ipam", "pool": "rails"}
    config = {"cniVersion": "1.0.0", "name": "rail-0", "type": "macvlan", "ipam": ipam}
    world.put(DEFINITION, "rail-0", "team", spec={"config": json.dumps(config)})
    usage = {"family": "IPv4", "size": 9, "held": 8, "free": 1, "nodes": 2}
    status = {"observedGeneration": 0, "usage": [usage]}
    world.put(IP_POOL, "rails", spec={}, status=status)
    asks = {"k8s.v1.cni.cncf.io/networks": "rail-0"}
    world.workload("fits", annotations=asks)
    async with world.answering():
        await until(lambda: world.state("fits") == "Ready")
        wants = [{"node": "node-1", "family": "IPv4", "count": 1}]
        world.put(IP_POOL, "rails", spec={}, status={**status, "wants": wants})
        await settled(world)
        world.workload("short", annotations=asks)
        await until(lambda: world.state("short") == "Retry")
    assert world.answers("short")["rails"]["message"] == (
        "IPPool rails has 1 IPv4 addresses left for 2"
    )


async def test_a_job_that_changes_meanwhile_is_judged_anew(world):
    world.workload()
    async with world.answering():
        await until(lambda: world.state() == "Ready")
        world.report("node-1", 0)
        world.line.fail.append(409)
        world.workload()
        await until(lambda: world.state() == "Retry")


async def test_at_rest_nothing_is_written(world):
    world.workload()
    async with world.answering():
        await until(lambda: world.state() == "Ready")
        await settled(world)
    world.report("node-1", 0)
    async with world.answering():  # of another leader
        await settled(world)
        assert len(world.writes) == 3  # of the job and two fences
        assert ADMISSION_CHECK.plural not in {r.plural for r in world.line.requests if r.body}


async def test_a_controller_that_starts_again_answers_what_is_left_and_nothing_twice(world):
    """The first one goes while its second write is under way: the write arrives all the same."""
    world.workload("first")
    async with world.answering():
        await until(lambda: world.state("first") == "Ready")
        world.line.lose = 1
        world.workload("second")
        await until(lambda: len(world.writes) == 2)
    world.workload("third")
    assert [world.state(each) for each in ("second", "third")] == ["Ready", "Pending"]
    async with world.answering():
        await until(lambda: world.state("third") == "Ready")
        await settled(world)
    written = [one["metadata"]["name"] for one in world.writes]
    assert written == ["first", "second", "third", "fence-3"]


async def test_texts_of_a_tenant_cannot_write_into_messages(world):
    odd = "rdma/\x1b[31m\nnode node-1 is well\u202e"
    world.workload(shares=8, resource=odd, annotations={"k8s.v1.cni.cncf.io/networks": "a\x07"})
    async with world.answering():
        await until(lambda: world.state() == "Retry" and world.told())
    message = world.answers()["rails"]["message"]
    assert "0 healthy shares of rdma/?[31m node node-1 is well? are on node node-1" in message
    for text in (message, *(note for _, _, note in world.told())):
        assert text.isprintable()


@pytest.mark.parametrize("many", [300, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_each_of_many_jobs_costs_one_write(world, many):
    world.report("node-2", 7)
    for at in range(many):
        world.workload(f"job-{at}", (f"host-{at % 2 + 1}",))
    async with world.answering():
        await until(lambda: len(world.line.requests) >= many)
        await settled(world)
    assert len(world.writes) == many + 1
    states = {one["status"]["admissionChecks"][0]["state"] for one in world.writes}
    assert states == {"Ready", "Retry"}
