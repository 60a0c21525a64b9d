"""What gang a pod is of, who measures with whom, and whom the figures accuse."""

import json
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import replace
from kube_rdma.model import preflight as model
from kube_rdma.model.verify import Pairing, PodDevice, SuspectKind
from kube_rdma.preflight import rules
from kube_rdma.preflight.documents import plan_text, read_plan, read_verdict
from kube_rdma.verify.views import verdict

OWNER = model.GangOwner("batch/v1", "Job", "train")
RING = model.Standard(Pairing.RING)


def pods(count, nodes=4, rails=2):
    """Pods of a gang, node by node, with a device on each rail."""
    return [
        model.PreflightPod(
            "team",
            f"w-{n}",
            f"uid-{n}",
            gang=model.Gang("team", "train", "Job", count),
            standard=RING,
            node=f"node-{n % nodes}",
            address=f"10.0.0.{n}",
            devices=tuple(PodDevice(f"mlx5_{r}", 1, 3, f"10.{r + 1}.0.{n}") for r in range(rails)),
            is_measuring=True,
        )
        for n in range(count)
    ]


def planned(gang, standard=RING):
    """The pods with their plans as texts."""
    found = rules.plans(gang, standard)
    return [replace(pod, plan=found[pod.uid]) for pod in gang]


def measured(gang, figure):
    """The pods with the figures that a function gives for a client and a run."""
    return [
        replace(
            pod,
            result="\n".join(
                rules.result_line(run, rules.Result(figure(pod, run)))
                for run in pod.plan.runs
                if run.client
            ),
        )
        for pod in gang
    ]


def proof(gang, count, standard):
    """What the bandwidths come to, and the latencies if they are worse."""
    every = rules.proofs(gang, count, standard)
    return next((one for one in every if not one.is_well), every[0])


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({}, "“” is not allowed"),
        ({model.REQUEST: "mesh"}, "Write ring or star"),
        ({model.REQUEST: "ring", model.MIN_BANDWIDTH: "80"}, None),
        ({model.REQUEST: "ring", model.MIN_BANDWIDTH: "-80G"}, "Write bit/s with a suffix"),
        ({model.REQUEST: "ring", model.MIN_BANDWIDTH: "nan"}, "Write bit/s with a suffix"),
        ({model.REQUEST: "ring", model.MAX_LATENCY: "5"}, "Write a number with a unit"),
        ({model.REQUEST: "ring", model.TOLERANCE: "0.5"}, "Write a number of percent"),
        ({model.REQUEST: "ring", model.TOLERANCE: "100%"}, "Write a number of percent"),
        ({model.REQUEST: "\x1b[2J"}, r"“\?\[2J”"),
    ],
)
def test_a_request_that_nobody_can_measure_is_refused_in_one_sentence(annotations, said):
    if said is None:
        assert rules.standard_of(annotations).gbps < 1
        return
    with pytest.raises(Refused, match=said):
        rules.standard_of(annotations)


def test_a_request_has_its_limits_in_gigabits_and_microseconds():
    asked = {model.REQUEST: "star", model.MIN_BANDWIDTH: "80G", model.MAX_LATENCY: "5us"}
    assert rules.standard_of(asked) == model.Standard(Pairing.STAR, 80.0, 5.0)


@pytest.mark.parametrize(
    ("labels", "annotations", "owner", "gang"),
    [
        ({}, {}, OWNER, ("Job", "train", None)),
        ({}, {model.SIZE: "8"}, OWNER, ("Job", "train", 8)),
        ({model.GANG: "mine"}, {model.SIZE: "2"}, None, ("gang", "mine", 2)),
        (
            {
                "leaderworkerset.sigs.k8s.io/name": "infer",
                "leaderworkerset.sigs.k8s.io/group-index": "3",
            },
            {},
            model.GangOwner("apps/v1", "StatefulSet", "infer-3"),
            ("LeaderWorkerSet", "infer-3", None),
        ),
        ({"jobset.sigs.k8s.io/jobset-name": "set"}, {}, OWNER, ("JobSet", "set", None)),
        (
            {"training.kubeflow.org/job-name": "pi"},
            {},
            model.GangOwner("kubeflow.org/v2beta1", "MPIJob", "pi"),
            ("MPIJob", "pi", None),
        ),
        (
            {"ray.io/cluster": "ray"},
            {},
            model.GangOwner("ray.io/v1", "RayCluster", "ray"),
            ("RayCluster", "ray", None),
        ),
    ],
)
def test_a_pod_is_of_the_gang_that_its_owner_starts_together(labels, annotations, owner, gang):
    found = rules.gang_of("team", labels, annotations, owner)
    assert (found.kind, found.name, found.size) == gang
    assert found.namespace == "team"


@pytest.mark.parametrize(
    ("labels", "annotations", "owner"),
    [
        ({}, {}, None),
        ({}, {}, model.GangOwner("apps/v1", "ReplicaSet", "web")),
        ({}, {}, model.GangOwner("batch.volcano.sh/v1alpha1", "Job", "train")),
        ({"training.kubeflow.org/job-name": "train"}, {}, model.GangOwner("batch/v1", "Job", "..")),
        ({model.GANG: "mine"}, {}, None),
        ({model.GANG: "mine"}, {model.SIZE: "0"}, None),
        ({model.GANG: "mine"}, {model.SIZE: "9" * 5000}, None),
        ({model.GANG: "Train_1"}, {model.SIZE: "2"}, None),
        ({"jobset.sigs.k8s.io/jobset-name": "a/b"}, {}, OWNER),
        ({"training.kubeflow.org/job-role": "launcher"}, {}, OWNER),
    ],
)
def test_a_pod_of_which_nothing_says_the_gang_is_refused(labels, annotations, owner):
    with pytest.raises(Refused, match=r"Write|Say"):
        rules.gang_of("team", labels, annotations, owner)


ASKING = {"template": {"metadata": {"annotations": {model.REQUEST: "ring"}}}}
OTHER = {"template": {"metadata": {}}}


def group(worker, leader=None, startup="LeaderCreated", **more):
    """The spec of a LeaderWorkerSet."""
    made = {"workerTemplate": worker["template"], **more}
    if leader:
        made["leaderTemplate"] = leader["template"]
    return {"startupPolicy": startup, "leaderWorkerTemplate": made}


@pytest.mark.parametrize(
    ("kind", "spec", "size"),
    [
        ("Job", {}, 1),
        ("Job", {"parallelism": 8}, 8),
        ("Job", {"parallelism": 8, "completions": 3}, 3),
        ("StatefulSet", {"replicas": 4, "podManagementPolicy": "Parallel"}, 4),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {"replicas": 2, "template": {"spec": {"parallelism": 4, **ASKING}}},
                    {"replicas": 1, "template": {"spec": {"parallelism": 1, **OTHER}}},
                ]
            },
            8,
        ),
        ("LeaderWorkerSet", group(ASKING, size=8), 8),
        ("LeaderWorkerSet", group(ASKING, leaderTemplate=None), 1),
        ("LeaderWorkerSet", group(ASKING, OTHER, "LeaderReady", size=8), 7),
        ("LeaderWorkerSet", group(OTHER, ASKING, "LeaderReady", size=8), 1),
        (
            "MPIJob",
            {"mpiReplicaSpecs": {"Launcher": OTHER, "Worker": {"replicas": 6, **ASKING}}},
            6,
        ),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Master": ASKING, "Worker": ASKING}}, 2),
        (
            "RayCluster",
            {
                "headGroupSpec": OTHER,
                "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 2, **ASKING}],
            },
            4,
        ),
    ],
)
def test_an_owner_says_how_many_of_its_pods_ask(kind, spec, size):
    assert rules.size_by_owner(kind, spec) == size


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Job", {"parallelism": "8"}),
        ("Job", {"parallelism": True}),
        ("Job", {"parallelism": -1}),
        ("Job", {"parallelism": 10**6}),
        ("JobSet", {}),
        ("JobSet", {"replicatedJobs": [{"template": 1}]}),
        ("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 8}}),
        ("LeaderWorkerSet", group(OTHER, size=8)),
        ("LeaderWorkerSet", group(ASKING, size=0)),
        ("MPIJob", {"mpiReplicaSpecs": [1]}),
        ("RayCluster", {"headGroupSpec": None}),
    ],
)
def test_an_owner_of_another_form_is_refused(kind, spec):
    with pytest.raises(Refused, match="asks for no pods"):
        rules.size_by_owner(kind, spec)


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("Job", {"parallelism": 4, "completions": 6}, "runs 4 of 6 pods at a time"),
        ("StatefulSet", {"replicas": 4}, "podManagementPolicy: Parallel"),
        (
            "JobSet",
            {
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "replicatedJobs": [{"template": {"spec": ASKING}}] * 2,
            },
            "one after the other",
        ),
        (
            "LeaderWorkerSet",
            group(ASKING, startup="LeaderReady", size=2),
            "startupPolicy: LeaderCreated",
        ),
    ],
)
def test_pods_that_do_not_start_together_are_refused_with_a_remedy(kind, spec, said):
    with pytest.raises(Refused, match=said):
        rules.size_by_owner(kind, spec)


@given(
    st.integers(1, 12),
    st.integers(1, 8),
    st.integers(1, 4),
    st.sampled_from([Pairing.RING, Pairing.STAR]),
    st.booleans(),
)
def test_both_ends_of_each_pair_agree_and_no_card_is_measured_twice_at_once(
    count, nodes, rails, pairing, latency
):
    standard = model.Standard(pairing, None, 5.0 if latency else None)
    gang = pods(count, nodes, rails)
    plans = rules.plans(gang, standard)
    assert {plan.pods for plan in plans.values()} == {count}
    # Pods of one node share their cards here, so turns begin at the same time in all pods.
    assert {plan.slot for plan in plans.values()} == {rules.SLOT if nodes < count else 0}
    ends = Counter()
    for pod in gang:
        for run in plans[pod.uid].runs:
            other = next(one for one in gang if one.devices[run.rail].address == run.peer)
            names = (pod.name, other.name) if run.client else (other.name, pod.name)
            ends[(*names, run.turn, run.rail, run.latency, run.port)] += 1
    assert set(ends.values()) <= {2}
    for turn in {key[2] for key in ends}:
        cards = Counter(
            (pod.node, run.device.name, run.client)
            for pod in gang
            for run in plans[pod.uid].runs
            if run.turn == turn and not run.latency
        )
        assert set(cards.values()) <= {1}
    served = Counter(
        (pod.node, run.port) for pod in gang for run in plans[pod.uid].runs if not run.client
    )
    assert pairing is Pairing.STAR or set(served.values()) <= {1}


def test_neighbours_of_a_ring_are_on_different_nodes():
    gang = pods(8)
    by_address = {device.address: pod for pod in gang for device in pod.devices}
    for pod in planned(gang):
        peers = {by_address[run.peer].node for run in pod.plan.runs}
        assert len(peers) == 2
        assert pod.node not in peers


def test_a_plan_does_not_depend_on_the_order_in_which_pods_were_seen():
    gang = pods(8)
    assert rules.plans(gang, RING) == rules.plans(gang[::-1], RING)


def test_a_gang_of_512_fits_in_a_ring_and_takes_too_long_in_a_star():
    gang = pods(512, 64, 8)
    assert all(len(plan_text(pod.plan)) < 8000 for pod in planned(gang))
    with pytest.raises(Refused, match=r"511 turns, .* longer than 3600 s.*: ring"):
        planned(gang, model.Standard(Pairing.STAR))
    with pytest.raises(Refused, match=r"turns, .* fewer of its pods share a card"):
        planned(pods(64, 1, 1))


def test_rails_without_ipv4_are_refused():
    gang = [
        replace(pod, devices=(PodDevice("mlx5_0", 1, 3, f"fd00::{n}"),), cards=())
        for n, pod in enumerate(pods(2))
    ]
    with pytest.raises(Refused, match=r"only fd00::1.* pool with IPv4"):
        planned(gang)
    on_nodes = [
        replace(pod, devices=(PodDevice("mlx5_0"),), address=f"fd00::{n}")
        for n, pod in enumerate(pods(2))
    ]
    with pytest.raises(Refused, match=r"only fd00::1.* nodes with IPv4"):
        planned(on_nodes)


def test_rails_are_those_of_the_reports_or_for_all_pods_the_places_of_devices():
    gang = [replace(pod, cards=("a", "b")) for pod in pods(4)]
    rails = {f"node-{n}": places(a=1, b=0) for n in range(4)}
    assert {pod.rails for pod in rules.placed(gang, rails)} == {(1, 0)}
    for broken in (places(a=1), places(a=1, b=1), {}):
        assert {pod.rails for pod in rules.placed(gang, {**rails, "node-2": broken})} == {()}


def places(**rails):
    return {card: model.CardPlace(rail, card) for card, rail in rails.items()}


@pytest.mark.parametrize(("pools", "name"), [((), "mlx5_1"), (("rdma/ib",), "mlx5_0")])
def test_a_function_is_measured_unless_its_card_is_the_pod_s_too(pools, name):
    """A report has cards of no pool, too."""
    of_node = {
        card: model.CardPlace(0, "pf", own, (PodDevice(device),), is_infiniband=True, is_up=True)
        for card, own, device in (("pf", pools, "mlx5_0"), ("vf", ("rdma/ib",), "mlx5_1"))
    }
    gang = [replace(pod, devices=(), resources=("rdma/ib",)) for pod in pods(2)]
    found = rules.placed(gang, {"node-0": of_node, "node-1": of_node})
    assert {tuple(one.name for one in pod.devices) for pod in found} == {(name,)}


def test_pods_whose_cards_share_no_rail_measure_all_the_same():
    """As the scheduler chose cards for them."""
    gang = [replace(pod, cards=("a",)) for pod in pods(2, rails=1)]
    reports = {"node-0": places(a=0), "node-1": places(a=1)}
    assert {pod.rails for pod in rules.placed(gang, reports)} == {()}


def test_functions_of_one_card_are_not_measured_at_once():
    gang = [
        replace(pod, cards=(f"vf{n}",), devices=(replace(pod.devices[0], name=f"mlx5_{n}"),))
        for n, pod in enumerate(pods(4, 2, 1))
    ]
    of_node = {f"vf{n}": model.CardPlace(0, "pf") for n in range(4)}
    found = rules.plans(rules.placed(gang, {"node-0": of_node, "node-1": of_node}), RING)
    for plan in found.values():
        assert plan.slot == rules.SLOT
        assert len({run.turn for run in plan.runs}) == len(plan.runs)


def test_a_card_is_not_measured_with_itself_where_the_gang_has_another():
    found = rules.plans(pods(3, 2, 1), RING)
    assert sum(len(plan.runs) for plan in found.values()) == 2 * 2
    alone = rules.plans(pods(3, 1, 1), RING)
    assert sum(len(plan.runs) for plan in alone.values()) == 3 * 2


def lined(gang, rates):
    """The pods with figures at 97 % of the line rate of each rail."""
    return [
        replace(
            pod,
            result="\n".join(
                rules.result_line(run, rules.Result(0.97 * rates[run.rail], rates[run.rail]))
                for run in pod.plan.runs
                if run.client
            ),
        )
        for pod in gang
    ]


def test_few_pairs_of_rails_of_unlike_speed_are_not_compared():
    assert proof(lined(planned(pods(3)), (200.0, 100.0)), 3, RING).is_well


def test_a_card_alone_or_a_limit_of_the_gang_is_no_matter_of_the_line_rate():
    alone = measured(planned(pods(2, 1, 1)), lambda *_: 120.0)
    slow = [replace(pod, result=(pod.result or "").replace(";", " of 400.0;")) for pod in alone]
    assert proof(slow, 2, RING).is_well
    apart = measured(planned(pods(4, 4, 1)), lambda *_: 120.0)
    apart = [replace(pod, result=(pod.result or "").replace(";", " of 400.0;")) for pod in apart]
    assert not proof(apart, 4, RING).is_well
    assert proof(apart, 4, model.Standard(Pairing.RING, 100.0)).is_well


def test_a_plan_is_read_as_it_was_written():
    standard = model.Standard(Pairing.STAR, 1.0, 5.0)
    for uid, plan in rules.plans(pods(5), standard).items():
        assert read_plan(plan_text(plan)) == plan, uid


@given(st.text(max_size=300))
@example("[" * 100_000)
@example('{"round": "a", "pods": 1, "runs": [{}]}')
def test_any_other_text_is_no_plan_no_verdict_and_no_result(text):
    assert read_plan(text) is None
    assert read_verdict(text) is None
    assert isinstance(rules.results(text), dict)


@pytest.mark.parametrize(
    "line",
    [
        *("0 0 bw nan;", "0 0 bw inf;", "0 0 bw -1;", "0 0 bw 1e9;", "0 0 x 1;", "0 0;"),
        "0 0 bw " + "9" * 40 + ";",
        *("0 0 bw 19", "0 0 bw 97.5 of 2"),  # the kubelet cuts a message
    ],
)
def test_a_figure_that_is_none_does_not_count(line):
    assert rules.results(line) == {}


def test_what_a_pod_says_of_others_and_twice_does_not_count():
    gang = planned(pods(4))
    lied = "\n".join(f"{turn} {rail} bw 900.0;" for turn in range(9) for rail in range(9))
    liar = replace(gang[0], result=lied + "\n0 0 bw 1.0;")
    others = measured(gang[1:], lambda *_: 90.0)
    found = proof([liar, *others], 4, RING)
    assert len(found.rated) == len(proof(measured(gang, lambda *_: 90.0), 4, RING).rated)


def test_a_gang_says_how_unlike_its_pairs_may_be():
    asked = rules.standard_of({model.REQUEST: "ring", model.TOLERANCE: "60%"})

    def figure(pod, run):
        return 40.0 if pod.name == "w-0" and run.rail else 90.0

    gang = measured(planned(pods(8)), figure)
    assert not proof(gang, 8, RING).is_well
    assert proof(gang, 8, asked).is_well


def test_a_gang_on_good_rails_is_well():
    found = proof(measured(planned(pods(8)), lambda *_: 90.0), 8, RING)
    assert found.is_well
    assert len(found.rated) == 16


@pytest.mark.parametrize("bad", [f"node-{n}" for n in range(4)])
@pytest.mark.parametrize("rail", [0, 1])
def test_the_one_lossy_card_is_named_by_its_node(bad, rail):
    gang = planned(pods(8))
    nodes = {device.address: pod.node for pod in gang for device in pod.devices}

    def figure(pod, run):
        is_bad = run.rail == rail and bad in (pod.node, nodes[run.peer])
        return 12.0 if is_bad else 90.0

    found = proof(measured(gang, figure), 8, RING)
    assert not found.is_well
    (suspect,) = found.suspects
    assert (suspect.kind, suspect.node) == (SuspectKind.CARD, bad)
    assert suspect.device == f"mlx5_{rail}"


def test_a_limit_that_all_miss_is_not_well_and_accuses_nobody():
    standard = model.Standard(Pairing.RING, 100.0)
    gang = measured(planned(pods(4), standard), lambda *_: 90.0)
    found = proof(gang, 4, standard)
    assert (found.is_well, found.suspects) == (False, ())
    assert "90.00 Gb/s is less than the 100.00 asked for" in verdict(found)


def test_a_pod_that_is_gone_or_reported_nothing_is_not_well():
    gang = measured(planned(pods(4)), lambda *_: 90.0)
    assert not proof(gang[1:], 4, RING).is_well
    assert not proof([replace(gang[0], result=""), *gang[1:]], 4, RING).is_well
    silent = replace(gang[0], result="", failed="its container ended with 137: OOMKilled")
    rated = proof([silent, *gang[1:]], 4, RING).rated
    assert any("OOMKilled" in pair.why for pair in rated)


def test_a_card_that_nobody_can_be_measured_with_is_not_well():
    """Two pods on two rails have no pair; of four pods one has a card more."""
    apart = [replace(pod, rails=(n,)) for n, pod in enumerate(pods(2, rails=1))]
    found = proof(measured(planned(apart), lambda *_: 90.0), 2, RING)
    assert (found.is_well, len(found.left_out)) == (False, 2)
    more = pods(4, rails=1)
    more[0] = replace(more[0], devices=(*more[0].devices, PodDevice("mlx5_9", 1, 3, "10.9.0.1")))
    found = proof(measured(planned(more), lambda *_: 90.0), 4, RING)
    assert not found.is_well
    assert "no other pod has a device on rail 1" in str(found.left_out)


def test_few_pairs_are_compared_with_the_best_of_the_gang():
    """Of three pairs two are bad if one card is, and a median would call the third one odd."""
    gang = planned(pods(3, nodes=3))

    def figure(pod, run):
        is_bad = run.rail == 1 and "10.2.0.1" in (run.peer, pod.devices[1].address)
        return 10.0 if is_bad else 90.0

    assert not proof(measured(gang, figure), 3, RING).is_well
    two = planned(pods(2))
    assert not proof(measured(two, lambda _, run: 10.0 if run.rail else 90.0), 2, RING).is_well
    assert proof(measured(two, lambda *_: 90.0), 2, RING).is_well


def test_a_card_below_its_line_rate_is_slow_also_in_a_pair_alone():
    (first, second) = planned(pods(2, rails=1))
    for figure, well in ((9.0, False), (95.0, True)):
        line = "\n".join(
            rules.result_line(run, rules.Result(figure, 100.0))
            for run in first.plan.runs
            if run.client
        )
        assert proof([replace(first, result=line), second], 2, RING).is_well is well


def test_latencies_are_judged_beside_bandwidths():
    standard = model.Standard(Pairing.RING, None, 5.0)
    gang = planned(pods(4), standard)
    found = proof(measured(gang, lambda _, run: 2.0 if run.latency else 90.0), 4, standard)
    assert found.is_well
    slow = measured(gang, lambda _, run: 9.0 if run.latency else 90.0)
    assert not proof(slow, 4, standard).is_well


def test_a_pod_says_what_it_measures_awaits_and_found():
    """Without a plan, while it measures, after that, and with the verdict on the gang."""

    def said(pod, **more):
        return list(rules.progress(replace(pod, **more)))

    fresh, *_ = pods(4)
    first, *_ = planned(pods(4))
    head = "4 pods of Job team/train measure; it is in 4 pairs, on rails 0, 1"
    assert said(fresh) == ["It awaits other pods of Job team/train, which Events name"]
    wait = "Its container kube-rdma-preflight has not started"
    assert said(fresh, is_measuring=False) == [wait]
    assert said(fresh, is_measuring=False, pending="no node") == [f"{wait}: no node"]
    assert said(first) == [head, "It measures now"]
    (_, done) = said(first, is_measuring=False, result="")
    assert done == "It has measured, and awaits the verdict on Job team/train"
    assert said(first, result="", failed="it ended with 1") == [head, "it ended with 1"]
    assert said(fresh, gang=None, refusal="No.") == ["No."]
    verdict = model.GangVerdict("0" * 16, False, "node-2 mlx5_0 is slow.")
    assert said(first, result="", verdict=verdict) == [head, "node-2 mlx5_0 is slow."]
    forged = read_verdict(json.dumps({"round": "0", "well": False, "why": "\x1b[2J"}))
    assert said(fresh, verdict=forged) == ["?[2J"]
