"""What Kueue's objects and those of kube-rdma say, as values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_client import wire
from kube_rdma.adapters.cluster.kinds.own import DEFINITION, NODE_REPORT
from kube_rdma.ipam.cluster import IP_POOL_TEXT
from kube_rdma.model.preflight import REQUEST
from kube_rdma.queue import cluster
from kube_rdma.verify.cluster import BANDWIDTH_CHECK, last_measurement

HELD = {"type": "QuotaReserved", "status": "True", "reason": "a", "message": ""}
HELD |= {"lastTransitionTime": "2026-11-30T12:00:00Z"}
PENDING = {"name": "rails", "state": "Pending", "message": ""}
PENDING |= {"lastTransitionTime": "2026-11-30T12:00:00Z"}


def stored(kind, name="job", **parts):
    meta = {"name": name, "namespace": "team", "uid": "u", "resourceVersion": "1"}
    return wire.stored(kind, json.dumps({"metadata": meta, **parts}).encode())


def waiting(given_place, spec=None, annotations=None):
    """A Workload of one podSet that Kueue assigned so."""
    template = {"metadata": {"annotations": annotations or {}}, "spec": spec or {}}
    status = {"admissionChecks": [PENDING], "conditions": [HELD]}
    status["admission"] = {"podSetAssignments": [{"name": "main", **given_place}]}
    sets = [{"name": "main", "count": 4, "template": template}]
    return cluster.waiting_workload(stored(cluster.WORKLOAD, spec={"podSets": sets}, status=status))


def topology(*slices, levels=("kubernetes.io/hostname",)):
    return {"topologyAssignment": {"levels": list(levels), "slices": list(slices)}}


def part(counts, **values):
    return {"domainCount": 1, "valuesPerLevel": [values], "podCounts": counts}


@pytest.mark.parametrize(
    ("slices", "hosts"),
    [
        ([part({"universal": 4}, universal="node-1")], {"node-1": 4}),
        (
            [part({"universal": 2}, individual={"prefix": "node-", "roots": ["1", "2"]})],
            {"node-1": 2, "node-2": 2},
        ),
        (
            [
                part({"individual": [3]}, individual={"suffix": ".local", "roots": ["a"]}),
                part({"individual": [1]}, individual={"roots": ["b"]}),
            ],
            {"a.local": 3, "b": 1},
        ),
    ],
)
def test_each_form_of_a_topology_assignment_names_the_same_nodes(slices, hosts):
    (pods,) = waiting(topology(*slices)).pods
    assert pods.hosts == hosts


def test_of_several_levels_the_last_one_names_the_nodes():
    values = [{"universal": "leaf-1"}, {"individual": {"roots": ["a", "b"]}}]
    of = {"domainCount": 2, "valuesPerLevel": values, "podCounts": {"individual": [1, 3]}}
    levels = ("kube-rdma.io/leaf", "kubernetes.io/hostname")
    (pods,) = waiting(topology(of, levels=levels)).pods
    assert pods.hosts == {"a": 1, "b": 3}


def test_a_coarser_topology_names_no_nodes():
    leaf = part({"universal": 4}, universal="leaf-1")
    (pods,) = waiting(topology(leaf, levels=("kube-rdma.io/leaf",))).pods
    assert pods.hosts is None
    assert pods.count == 4


def test_a_workload_without_an_assignment_does_not_wait_yet():
    assert waiting({"name": "another"}) is None


def test_a_workload_whose_nodes_follow_all_checks_is_judged_without_them():
    """Kueue chooses nodes when all checks are ready, this one too (workload.HasAllChecksReady)."""
    (pods,) = waiting({"delayedTopologyRequest": "Pending"}).pods
    assert pods.hosts is None


def test_pods_ask_for_what_their_limits_and_annotations_say():
    limits = {"limits": {"rdma/nic": "2", "cpu": "4", "rdma/none": "0", "rdma/odd": "x"}}
    spec = {"containers": [{"name": "a", "resources": limits}], "resourceClaims": [{"name": "b"}]}
    asks = {"k8s.v1.cni.cncf.io/networks": "rail-0, other/rail-0", REQUEST: "ring"}
    place = {"count": 3, "flavors": {"cpu": "b", "rdma/nic": "a", "memory": "b"}}
    (pods,) = waiting(place, spec | {"nodeSelector": {"a": "b"}}, asks).pods
    assert dict(pods.resources) == {"rdma/nic": 2}
    assert pods.claims
    assert pods.networks == ("team/rail-0", "other/rail-0")
    assert pods.measures
    assert (pods.count, pods.flavors, pods.selector) == (3, ("a", "b"), {"a": "b"})


def test_an_annotation_that_agents_refuse_asks_for_nothing():
    (pods,) = waiting({}, annotations={"k8s.v1.cni.cncf.io/networks": "[{"}).pods
    assert pods.networks == ()


@given(st.text(max_size=40))
def test_whatever_the_annotation_is_the_workload_is_read(text):
    assert waiting({}, annotations={"k8s.v1.cni.cncf.io/networks": text})


ENDED = {"startTime": "2026-11-30T10:00:00Z", "completionTime": "2026-11-30T11:00:00Z"}


def measured(**status):
    counts = {"pairs": 1, "of": 1}
    suspects = [
        {"kind": "card", "node": "node-1", "device": "mlx5_3", **counts},
        {"kind": "rail", "rail": 1, **counts},
        {"kind": "pair", "node": "a", "peer": "b", **counts},
    ]
    own = {"observedGeneration": 1, "suspects": suspects}
    return last_measurement(stored(BANDWIDTH_CHECK, spec={}, status={**own, **status}))


def test_a_run_with_figures_says_whom_it_suspects():
    seen = measured(state="NotWell", **ENDED)
    assert (seen.namespace, seen.at.hour) == ("team", 11)
    assert seen.suspects == {
        frozenset({"node-1"}): "is a suspect of BandwidthCheck team/job (mlx5_3)",
        frozenset({"a", "b"}): "is a suspect of BandwidthCheck team/job",
    }


def test_while_the_next_run_is_under_way_the_suspects_stay():
    """They are those of the run before, whose time is no longer known."""
    seen = measured(state="Measuring", startTime="2026-11-30T12:00:00Z")
    assert (seen.at.hour, len(seen.suspects)) == (12, 2)


@pytest.mark.parametrize(
    "status",
    [
        {"state": "NotMeasured", **ENDED},
        {"state": "NotWell", **ENDED, "completionTime": "yesterday"},
        {"state": "NotWell", **ENDED, "completionTime": "2026-11-30T11:00:00"},
    ],
)
def test_a_run_without_figures_or_without_a_time_says_nothing(status):
    assert measured(**status) is None


USAGE = {"family": "IPv4", "size": 99, "held": 60, "free": 1, "nodes": 2}
WANT = {"node": "node-1", "family": "IPv4", "count": 1}


@pytest.mark.parametrize(
    ("status", "left"),
    [
        ({"usage": [USAGE]}, {"IPv4": 61}),
        ({"usage": [USAGE, {**USAGE, "rail": 1}]}, {"IPv4": 122}),
        ({"usage": [USAGE], "wants": [WANT]}, {"IPv4": 1}),
        ({"usage": [USAGE, {**USAGE, "family": "IPv6"}], "wants": [WANT]}, {"IPv4": 1, "IPv6": 61}),
        ({"usage": [USAGE], "observedGeneration": 6}, {}),
    ],
)
def test_held_addresses_count_until_a_node_waits_for_some(status, left):
    seen = wire.stored(
        IP_POOL_TEXT,
        json.dumps(
            {
                "metadata": {"name": "rails", "uid": "u", "generation": 7},
                "spec": {},
                "status": {"observedGeneration": 7, **status},
            }
        ).encode(),
    )
    assert cluster.addresses_left(seen) == left


def test_a_report_is_kept_with_its_ill_cards_alone():
    cards = [
        {"id": "0000:81:00.0", "name": "mlx5_0", "resources": ["rdma/nic"]},
        {"id": "0000:82:00.0", "name": "mlx5_1", "resources": ["rdma/nic"], "reasons": ["broken"]},
    ]
    status = {"agentVersion": "1", "summary": {"cards": 8, "healthy": 8}, "cards": cards}
    seen = cluster.judged_report(stored(NODE_REPORT, status=status))
    assert [card.name for card in seen.cards] == ["mlx5_1"]
    assert seen.cards == seen.ill
    assert cluster.judged_report(stored(NODE_REPORT)) is None


@pytest.mark.parametrize(
    ("ipam", "pool"),
    [({"pool": "rails"}, "rails"), ({"pools": {"0": "rail-0", "1": "rail-1"}}, None), ({}, None)],
)
def test_a_network_has_a_pool_if_no_rail_decides_it(ipam, pool):
    named = {"type": "kube-rdma-ipam", **ipam}
    config = {"cniVersion": "1.0.0", "name": "rail-0", "type": "macvlan", "ipam": named}
    seen = stored(DEFINITION, spec={"config": json.dumps(config)})
    assert cluster.pool_of_network(seen) == pool
