"""Helm 4, Flux and others that go by kstatus wait for objects of ours as long as there is need.

Each row is an object with a status that kube-rdma writes; its generation is 2.
"""

import json
from datetime import UTC, datetime

import msgspec
import pytest

from kube_rdma.cli.definitions import DEFINITIONS, OPERATOR_DEFINITIONS
from kube_rdma.ipam import ip_pool
from kube_rdma.ipam.objects import IPPoolStatus, PoolFindings, pool_status
from kube_rdma.lib.schema import definition
from kube_rdma.model.operator import AppliedState
from kube_rdma.model.pools import PolicyOutcome, PolicyRemark, PolicyRollup
from kube_rdma.operator.documents.nic_cluster_policy import (
    NicClusterPolicyStatus,
    PolicyVerdict,
    policy_status,
)
from kube_rdma.reports.node_policy_status import NodePolicyStatus, node_policy_status
from kube_rdma.verify.bandwidth_check import begun, encode, not_measured
from tests.kit.kstatus import Kstatus, kstatus

T0 = "2026-11-26T00:00:00Z"
NOW = datetime(2026, 11, 26, tzinfo=UTC)
GENERATION = 2
POOL = ip_pool.named(ip_pool.decode(b'{"ranges": [{"subnet": "10.0.0.0/24"}]}'), "rail-0")


def found(**findings):
    """The status of a pool by what the controller found out about generation 2."""
    return pool_status(None, POOL, PoolFindings(GENERATION, **findings), T0)


def policy(*outcomes, generation=GENERATION):
    """The status of a NodePolicy that selects a node for each outcome."""
    counts = tuple((each, outcomes.count(each)) for each in dict.fromkeys(outcomes))
    bad = (each for each in outcomes if each is not PolicyOutcome.APPLIED)
    remarks = tuple(PolicyRemark("node-1", each, "why") for each in bad)
    return node_policy_status(None, generation, PolicyRollup(counts, remarks), T0)


def verdict(state, **more):
    """The status of a NicClusterPolicy."""
    return policy_status(None, GENERATION, PolicyVerdict(state, "why", **more), T0)


ROWS = [
    ("a pool that can be used", found(), Kstatus.CURRENT),
    ("a pool nearly full", found(scarce=("it is full",)), Kstatus.CURRENT),
    ("a pool with an address that two nodes hold", found(conflicts=("a",)), Kstatus.IN_PROGRESS),
    ("a pool with nothing to give", found(broken="nothing is left"), Kstatus.FAILED),
    ("a pool that no controller has looked at", IPPoolStatus(), Kstatus.IN_PROGRESS),
    (
        "a pool that was changed since",
        pool_status(None, POOL, PoolFindings(GENERATION - 1), T0),
        Kstatus.IN_PROGRESS,
    ),
    ("a policy that all nodes apply", policy(PolicyOutcome.APPLIED), Kstatus.CURRENT),
    ("a policy that a higher one overrules", policy(PolicyOutcome.OVERRULED), Kstatus.CURRENT),
    ("a policy that a node waits with", policy(PolicyOutcome.PENDING), Kstatus.IN_PROGRESS),
    ("a policy that a node refuses", policy(PolicyOutcome.REFUSED), Kstatus.IN_PROGRESS),
    ("a policy for no node", policy(), Kstatus.IN_PROGRESS),
    (
        "a policy that was changed since",
        policy(PolicyOutcome.APPLIED, generation=GENERATION - 1),
        Kstatus.IN_PROGRESS,
    ),
    (
        "a policy that nobody understands",
        node_policy_status(None, GENERATION, "spec.pools: bad", T0),
        Kstatus.FAILED,
    ),
    ("a NicClusterPolicy whose parts run", verdict(AppliedState.READY), Kstatus.CURRENT),
    ("one that waits for pods", verdict(AppliedState.NOT_READY), Kstatus.IN_PROGRESS),
    ("one with another owner's DaemonSet", verdict(AppliedState.ERROR), Kstatus.IN_PROGRESS),
    ("one that is refused", verdict(AppliedState.ERROR, stalled=True), Kstatus.FAILED),
    ("one that no operator has looked at", NicClusterPolicyStatus(), Kstatus.IN_PROGRESS),
    ("a check that is under way", begun(None, GENERATION, NOW), Kstatus.CURRENT),
    ("a check of the spec before", begun(None, GENERATION - 1, NOW), Kstatus.IN_PROGRESS),
    (
        "a check that found nobody",
        not_measured(begun(None, GENERATION, NOW), "nobody", NOW),
        Kstatus.CURRENT,
    ),
]


@pytest.mark.parametrize(("status", "verdict"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_a_status_says_what_kstatus_makes_of_it(status, verdict):
    written = json.loads(_encoded(status))
    assert kstatus({"metadata": {"generation": GENERATION}, "status": written}) is verdict


@pytest.mark.parametrize("status", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_condition_names_the_generation_that_the_status_names(status):
    assert all(each.observed_generation == status.observed_generation for each in status.conditions)


@pytest.mark.parametrize(
    "resource",
    [each for each in (*DEFINITIONS, *OPERATOR_DEFINITIONS) if each.kind != "BandwidthCheck"],
    ids=lambda each: each.kind,
)
def test_a_new_object_is_waited_for_until_somebody_has_looked_at_it(resource):
    """By the default that the API server gives it; a check is a measurement, not a gate."""
    (version,) = definition(resource)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    parts = schema["properties"]
    if "spec" not in schema.get("required", ()) or "status" not in parts:  # a report, a block
        assert "default" not in parts.get("status", {})
        return
    new = {"metadata": {"generation": 1}, "status": parts["status"]["default"]}
    assert kstatus(new) is Kstatus.IN_PROGRESS


def test_a_status_that_is_null_is_an_error():
    with pytest.raises(TypeError):
        kstatus({"metadata": {"generation": 1}, "status": {"observedGeneration": None}})


def test_what_is_being_deleted_is_not_current():
    meta = {"generation": 1, "deletionTimestamp": T0}
    assert kstatus({"metadata": meta, "status": {}}) is Kstatus.TERMINATING


def _encoded(status):
    types = (IPPoolStatus, NodePolicyStatus, NicClusterPolicyStatus)
    return msgspec.json.encode(status) if isinstance(status, types) else encode(status)
