"""The controller plans rounds of gangs and judges them: all of a gang start, or none does."""

import time

import pytest

from tests.unit.ipam.conftest import until
from tests.unit.preflight.world import PreflightWorld


@pytest.fixture
def world(recording):
    made = PreflightWorld()
    made.log = recording
    return made


async def test_a_complete_gang_measures_and_starts(world):
    world.job()
    world.gang()
    async with world.leading():
        await until(lambda: len(world.plans()) == 4)
        (number,) = {plan.round for plan in world.plans().values()}
        for pod in range(4):
            assert world.verdicts() == {}
            world.report(pod)
        await until(lambda: len(world.verdicts()) == 4)
    assert {(one.round, one.well) for one in world.verdicts().values()} == {(number, True)}
    (check,) = world.checks
    assert check["metadata"]["namespace"] == "team"
    assert check["spec"] == {"preflight": "Job/train"}
    assert check["status"]["state"] == "Well"
    assert check["status"]["pairsMeasured"] == 4


async def test_nobody_is_planned_until_all_are_there(world):
    world.job()
    world.gang(3)
    async with world.leading(patience=0.0):
        await until(lambda: world.told("PreflightWaiting"))
        assert world.plans() == {}
        world.pod(3, state=None)
        await until(lambda: "train-3" in " ".join(world.told("PreflightWaiting")))
        assert world.plans() == {}
        world.pod(3)
        await until(lambda: len(world.plans()) == 4)
    first, *_ = world.told("PreflightWaiting")
    assert first == "Preflight waits: 3 of 4 pods can measure; 1 is not there."


async def test_a_pod_without_a_node_is_named_with_the_schedulers_words(world):
    world.job(pods=2)
    world.pod(0)
    said = {"type": "PodScheduled", "status": "False", "message": "0/4 nodes:\x1b[2J no rdma/nic"}
    world.pod(1, state=None, conditions=[said], node="")
    async with world.leading(patience=0.0):
        await until(lambda: world.told("PreflightWaiting"))
    (first, *_) = world.told("PreflightWaiting")
    assert "train-1 has no node (0/4 nodes:?[2J no rdma/nic)" in first


async def test_a_gang_with_a_bad_card_does_not_start_and_its_card_is_named(world):
    world.job(pods=8)
    world.gang(8)
    async with world.leading():
        await until(lambda: len(world.plans()) == 8)
        nodes = {f"10.1.5.{pod + 1}": f"node-{pod % 4}" for pod in range(8)}
        for pod in range(8):
            own = f"node-{pod % 4}"
            world.report(
                pod, lambda run, own=own: 9.0 if "node-2" in (own, nodes[run.peer]) else 90.0
            )
        await until(lambda: len(world.verdicts()) == 8)
        await until(lambda: len(world.told("PreflightFailed")) == 8)
    assert not any(one.well for one in world.verdicts().values())
    assert {one.why for one in world.verdicts().values()} == set(world.told("PreflightFailed"))
    assert "node-2 mlx5_0" in world.told("PreflightFailed")[0]
    (check,) = world.checks
    assert [one["node"] for one in check["status"]["suspects"]] == ["node-2"]


async def test_a_pod_that_goes_half_way_lets_nobody_start(world):
    world.job()
    world.gang()
    async with world.leading():
        await until(lambda: len(world.plans()) == 4)
        world.pod(3, phase="Failed")
        for pod in range(3):
            world.report(pod)
        await until(lambda: len(world.verdicts()) == 3)
    assert not any(one.well for one in world.verdicts().values())


async def test_a_round_that_does_not_end_is_judged_at_its_deadline(world):
    world.job(pods=2)
    world.gang(2)
    async with world.leading(spare=-120.0):  # one pair: it may take 120 seconds
        await until(lambda: len(world.verdicts()) == 2)
    assert not any(one.well for one in world.verdicts().values())
    assert "reported nothing" in str(world.checks)


async def test_controllers_that_are_killed_after_each_write_come_to_one_verdict(world):
    world.job()
    world.gang()
    leaders = 0
    while len(world.plans()) < 4 or len(world.verdicts()) < 4:
        leaders += 1
        async with world.leading():
            await until(lambda: world.writes)
        if len(world.plans()) == 4 and not world.verdicts():
            for pod in range(4):
                world.report(pod)
    assert leaders > 2
    assert len({plan.round for plan in world.plans().values()}) == 1
    assert all(one.well for one in world.verdicts().values())
    assert len(world.checks) == 1


async def test_two_gangs_on_one_node_take_turns(world):
    for job in ("train", "infer"):
        world.job(job, pods=2)
    world.gang(2, job="train")
    async with world.leading(patience=0.0):
        await until(lambda: len(world.plans("train")) == 2)
        world.gang(2, job="infer")
        await until(lambda: world.told("PreflightWaiting"))
        assert world.plans("infer") == {}
        assert "Job train measures on node node-0" in world.told("PreflightWaiting")[0]
        for pod in range(2):
            world.report(pod, job="train")
        await until(lambda: len(world.plans("infer")) == 2)


async def test_no_namespace_keeps_a_node_with_one_gang_after_the_other(world):
    for name, namespace in (("a1", "aaa"), ("a2", "aaa"), ("b1", "bbb")):
        world.job(name, pods=2, namespace=namespace)
        world.gang(2, job=name, namespace=namespace)
    async with world.leading():
        await until(lambda: len(world.plans("a1")) == 2)
        for number in range(2):
            world.report(number, job="a1", namespace="aaa")
        await until(lambda: len(world.plans("b1")) == 2)
        assert world.plans("a2") == {}
        for number in range(2):
            world.report(number, job="b1", namespace="bbb")
        await until(lambda: len(world.plans("a2")) == 2)


async def test_no_owner_is_read_while_none_of_its_pods_can_measure(world):
    world.job()
    world.gang(4, state=None)
    async with world.leading(patience=0.0):
        await until(lambda: world.told("PreflightWaiting"))
        assert not [one for one in world.line.requests if one.plural == "jobs"]


async def test_the_gang_of_another_namespace_has_no_name_in_an_event(world):
    for namespace in ("team", "other"):
        world.job(pods=2, namespace=namespace)
    world.gang(2)
    async with world.leading(patience=0.0):
        await until(lambda: len(world.plans()) == 2)
        world.gang(2, namespace="other")
        await until(lambda: world.told("PreflightWaiting"))
    assert "another gang measures on node node-0" in world.told("PreflightWaiting")[0]


async def test_a_request_that_nobody_can_measure_fails_at_once(world):
    world.job(pods=1)
    world.pod(0, asks="mesh")
    async with world.leading():
        await until(world.verdicts)
    (verdict,) = world.verdicts().values()
    assert not verdict.well
    assert "Write ring or star" in verdict.why


async def test_a_gang_whose_owner_is_gone_waits_and_says_what_to_write(world):
    """An API server that starts may know neither it nor its kind yet."""
    world.pod(0, job="lost")
    async with world.leading(patience=0.0):
        await until(lambda: world.told("PreflightWaiting"))
        assert "there is no Job team/lost" in world.told("PreflightWaiting")[0]
        assert world.verdicts("lost") == {}


async def test_a_job_that_starts_its_pods_in_waves_fails_with_what_to_write(world):
    world.job(pods=2, completions=5)
    world.gang(2)
    async with world.leading():
        await until(lambda: len(world.verdicts()) == 2)
    assert "Give completions and parallelism one number" in world.verdicts()[0].why


async def measured(world, gang, pods, **more):
    """Wait for the plans of a gang, report good figures, and wait for the verdicts."""
    await until(lambda: len(world.plans(gang)) == pods)
    for number in world.plans(gang):
        world.report(number, job=gang, **more)
    await until(lambda: len(world.verdicts(gang)) == pods)


async def test_a_pod_that_comes_later_is_not_let_in_unmeasured(world):
    world.job()
    world.gang()
    async with world.leading(patience=0.0):
        await measured(world, "train", 4)
        world.pod(9)
        await until(lambda: 9 in world.verdicts())
    assert not world.verdicts()[9].well
    assert "has nobody to measure with" in world.verdicts()[9].why


async def test_a_job_that_is_made_anew_measures_again_while_its_old_pods_run(world):
    world.job()
    world.gang()
    async with world.leading(patience=0.0):
        await measured(world, "train", 4)
        for number in range(4, 8):
            world.pod(number, owner="another")
        await until(lambda: len(world.plans()) == 8)
    assert len({plan.round for plan in world.plans().values()}) == 2


OF_SET = "jobset.sigs.k8s.io/"


def of_attempt(number, uid="s"):
    """The labels of a pod of a JobSet, after so many restarts."""
    labels = {"jobset-name": "train", "jobset-uid": uid, "restart-attempt": str(number)}
    return {"labels": {OF_SET + key: value for key, value in labels.items()}}


@pytest.mark.parametrize("later", [of_attempt(1), of_attempt(0, "another")])
async def test_a_jobset_that_restarts_measures_again_while_its_old_pods_run(world, later):
    """It makes a job again while pods of another job still end; or somebody makes it anew."""
    world.job_set("train", 4)
    world.gang(4, job="first", **of_attempt(0))
    async with world.leading(patience=0.0):
        await measured(world, "first", 4, **of_attempt(0))
        world.gang(4, job="again", **later)
        await measured(world, "again", 4, **later)
    assert len(world.checks) == 1  # however often it restarts
    one, other = ({each.round for each in world.plans(job).values()} for job in ("first", "again"))
    assert (len(one), len(other), one & other) == (1, 1, set())
    assert all(each.well for each in world.verdicts("again").values())


async def test_pods_of_two_attempts_of_a_jobset_do_not_measure_with_each_other(world):
    world.job_set("train", 4)
    world.gang(2, job="first", **of_attempt(0))
    world.gang(2, job="again", **of_attempt(1))
    async with world.leading(patience=0.0):
        await until(lambda: len(world.told("PreflightWaiting")) == 4)
        assert world.plans("first") == world.plans("again") == {}
    assert "2 of 4 pods can measure; 2 are not there." in world.told("PreflightWaiting")[0]


OF_GROUP = {
    "labels": {
        "leaderworkerset.sigs.k8s.io/name": "infer",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
    }
}


async def test_a_group_whose_leader_comes_first_again_measures_again(world):
    """As after `kubectl delete pod`: its old workers are deleted a moment later."""
    world.leader_worker_set("infer", 4)
    world.gang(4, job="infer", **OF_GROUP)
    async with world.leading():
        await measured(world, "infer", 4, **OF_GROUP)
        world.delete("infer-0")
        world.pod(0, job="infer", **OF_GROUP)
        world.job("fence", pods=1)
        world.pod(0, job="fence", node="elsewhere")
        await until(lambda: world.plans("fence"))
        assert 0 not in world.verdicts("infer")
        for worker in range(1, 4):
            world.delete(f"infer-{worker}")
        world.gang(4, job="infer", **OF_GROUP)
        await measured(world, "infer", 4, **OF_GROUP)
    assert all(one.well for one in world.verdicts("infer").values())
    assert not world.told("PreflightFailed")


async def test_workers_that_wait_for_their_leader_are_refused_with_it(world):
    world.leader_worker_set("infer", 4, startupPolicy="LeaderReady")
    world.pod(0, job="infer", **OF_GROUP)
    async with world.leading():
        await until(lambda: world.verdicts("infer"))
    assert "Write startupPolicy: LeaderCreated" in world.verdicts("infer")[0].why


async def test_a_result_that_cannot_be_written_holds_nobody_up(world):
    """A quota may forbid it; the verdict stands in the pods."""
    world.server.forbidden.add(("create", "bandwidthchecks"))
    world.job(pods=2)
    world.gang(2)
    async with world.leading():
        await until(lambda: len(world.plans()) == 2)
        for pod in range(2):
            world.report(pod)
        await until(lambda: len(world.verdicts()) == 2)
    assert all(one.well for one in world.verdicts().values())


async def test_a_pod_that_goes_half_way_leaves_its_node_to_others(world):
    for job in ("train", "infer"):
        world.job(job, pods=2)
    world.gang(2, job="train")
    async with world.leading(patience=0.0):
        await until(lambda: len(world.plans("train")) == 2)
        world.pod(1, job="train", phase="Failed")
        world.gang(2, job="infer")
        await until(lambda: world.told("PreflightWaiting"))
        world.report(0, job="train")
        await until(lambda: len(world.plans("infer")) == 2)


async def test_the_next_controller_knows_who_measures_on_a_node(world):
    """The gang that waits comes first by its name."""
    world.job("train", pods=2)
    world.gang(2, job="train")
    async with world.leading():
        await until(lambda: len(world.plans("train")) == 2)
    world.job("alfa", pods=2)
    world.gang(2, job="alfa")
    async with world.leading(patience=0.0):
        await until(lambda: world.told("PreflightWaiting"))
        assert world.plans("alfa") == {}
        for pod in range(2):
            world.report(pod, job="train")
        await until(lambda: len(world.plans("alfa")) == 2)


async def test_a_label_alone_asks_for_nothing(world):
    world.pod(0, asks=None)
    world.job("fence", pods=1)
    world.pod(0, job="fence")
    async with world.leading():
        await until(lambda: world.plans("fence"))
    assert world.verdicts() == world.plans() == {}


async def test_a_gang_of_one_starts_unmeasured_and_says_so(world):
    world.job(pods=1)
    world.pod(0)
    async with world.leading():
        await until(world.plans)
        world.report(0)
        await until(world.verdicts)
    (verdict,) = world.verdicts().values()
    assert verdict.well
    assert "no pair to measure" in verdict.why


async def test_a_gang_costs_two_writes_for_each_pod_and_two_for_its_result(world):
    world.job()
    world.gang()
    async with world.leading():
        await until(lambda: len(world.plans()) == 4)
        for pod in range(4):
            world.report(pod)
        await until(lambda: len(world.verdicts()) == 4)
        world.job("fence", pods=1)
        world.pod(0, job="fence")
        await until(lambda: world.plans("fence"))
    own = [one for one in world.writes if "fence" not in one.name]
    assert len(own) == 4 + 4 + 2


async def _cost(gangs):
    """The controller's seconds of CPU and writes for gangs of two that measure and start."""
    world = PreflightWorld()
    for number in range(gangs):
        name = f"j{number}"
        world.job(name, pods=2)
        for pod in range(2):
            world.pod(pod, job=name, node=f"node-{number}-{pod}", seen=None)
    async with world.leading():
        began = time.process_time()
        await until(lambda: len(world.writes) == 2 * gangs)
        world.all_report()
        await until(lambda: len(world.writes) == 6 * gangs)
        took = time.process_time() - began
    return took, len(world.writes)


async def test_the_cost_of_gangs_grows_with_their_number(recording):
    """Four times as many cost about four times as much; sixteen would be the square."""
    (few, _), (many, writes) = await _cost(100), await _cost(400)
    assert writes == 6 * 400
    assert many < 8 * few


async def test_results_are_deleted_after_a_day(world):
    world.job(pods=2)
    world.gang(2)
    async with world.leading(sweep=0.01):
        await until(lambda: len(world.plans()) == 2)
        for pod in range(2):
            world.report(pod)
        await until(lambda: world.checks)
        world.now = world.now.replace(day=30, month=12)
        world.pod(9, job="fence", state=None)
        await until(lambda: not world.checks)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"attached": []}, "kube-rdma made no interface"),
        ({"attached": [], "shares": ["rdma/hca"]}, "write hostNetwork: true"),
        ({"attached": [], "shares": ["rdma/nic"], "host": True}, "no share of a whole pool"),
        ({"inits": ()}, "its first init containers are not kube-rdma-preflight"),
    ],
)
async def test_a_pod_that_never_can_measure_fails_and_says_what_to_do(world, more, said):
    """Nobody waits for a pod without a device, or for one that started without its containers."""
    world.job(pods=2)
    world.node_report("node-1", {"mlx5_0": UP})
    world.pod(0)
    world.pod(1, **more)
    async with world.leading():
        await until(lambda: world.told("PreflightFailed"))
        await until(world.verdicts)
    (verdict,) = world.verdicts().items()
    assert (verdict[0], verdict[1].well) == (1, False)
    assert said in verdict[1].why
    assert world.told("PreflightFailed") == [verdict[1].why]
    assert world.plans() == {}


HOST = {"attached": [], "shares": ["rdma/hca"], "host": True}
UP, DOWN = {"state": "ACTIVE"}, {"state": "DOWN"}


async def test_a_gang_on_the_nodes_networks_measures_the_cards_of_its_pool(world):
    """In the order of rails, by the nodes' addresses; a port that no node uses is left out."""
    world.job(pods=2)
    for pod in range(2):
        world.pod(pod, **HOST)
        world.node_report(f"node-{pod}", {"mlx5_0": UP, "mlx5_1": UP, "mlx5_9": DOWN})
    async with world.leading():
        await until(lambda: len(world.plans()) == 2)
        runs = [run for plan in world.plans().values() for run in plan.runs]
        assert {(run.rail, run.device.name) for run in runs} == {(0, "mlx5_0"), (1, "mlx5_1")}
        assert {run.peer for run in runs} == {"10.0.0.1", "10.0.0.2"}
        for pod in range(2):
            world.report(pod, **HOST)
        await until(lambda: len(world.verdicts()) == 2)
    assert all(one.well for one in world.verdicts().values())


async def test_a_card_that_is_down_on_one_node_alone_is_named(world):
    world.job(pods=4)
    for pod in range(4):
        world.pod(pod, **HOST)
        world.node_report(f"node-{pod}", {"mlx5_0": UP, "mlx5_1": DOWN if pod == 2 else UP})
    async with world.leading():
        await until(lambda: len(world.plans()) == 4)
        for pod in range(4):

            def figure(run, pod=pod):
                return 1.0 if run.rail and (pod == 2 or run.peer == "10.0.0.3") else 90.0

            world.report(pod, figure, **HOST)
        await until(lambda: world.checks and world.checks[0].get("status"))
    (suspect,) = world.checks[0]["status"]["suspects"]
    assert (suspect["node"], suspect["device"]) == ("node-2", "mlx5_1")


async def test_infiniband_needs_no_interface_of_the_pod(world):
    """Its pods meet on the cluster's network, and name no GID."""
    world.job(pods=2)
    for pod in range(2):
        world.pod(pod, attached=[], shares=["rdma/hca"])
        port = {**UP, "linkLayer": "InfiniBand"}
        world.node_report(f"node-{pod}", {"mlx5_0": port}, mode="shared", bind="")
    async with world.leading():
        await until(lambda: len(world.plans()) == 2)
    assert {run.device.gid_index for plan in world.plans().values() for run in plan.runs} == {None}


@pytest.mark.parametrize("pool", [{"bind": ""}, {"serve": "claims"}])
async def test_a_share_of_one_card_among_several_does_not_say_which(world, pool):
    world.job(pods=2)
    for pod in range(2):
        world.pod(pod, **HOST)
        world.node_report(f"node-{pod}", {"mlx5_0": UP, "mlx5_1": UP}, **pool)
    async with world.leading():
        await until(lambda: len(world.verdicts()) == 2)
    assert "no share of a whole pool" in world.verdicts()[0].why


async def test_a_gang_waits_for_the_reports_of_its_nodes(world):
    world.job(pods=2)
    for pod in range(2):
        world.pod(pod, **HOST)
    world.node_report("node-0", {"mlx5_0": UP})
    async with world.leading(patience=0.0):
        await until(lambda: world.told("PreflightWaiting"))
        world.node_report("node-1", {"mlx5_0": UP})
        await until(lambda: len(world.plans()) == 2)
    assert "train-1 awaits the NodeReport of node-1" in world.told("PreflightWaiting")[0]


async def test_a_pod_whose_containers_have_not_begun_may_get_its_interfaces_yet(world):
    world.job(pods=2)
    world.pod(0)
    world.pod(1, state=None, annotations={"kube-rdma.io/network-status": ""})
    async with world.leading(patience=0.0):
        await until(lambda: world.told("PreflightWaiting"))
        world.pod(1, again=True)
        await until(lambda: len(world.plans()) == 2)
    assert (world.verdicts(), world.told("PreflightFailed")) == ({}, [])
