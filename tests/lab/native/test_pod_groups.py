"""Jobs on one leaf by Kubernetes' own scheduler, of 1.37 with its feature gates for topologies.

The group (KEP-5732) and the job are those of examples/placement; the labels come from LLDP alone.
"""

import pytest

from kube_rdma_lab import cluster, waiting
from kube_rdma_lab.release import Release
from tests.kit.kueue import names_of, pods_of
from tests.kit.on_leaves import JOB, ROOM, applied, example, labelled, leaves_of, placed, sized

pytestmark = pytest.mark.slow  # it boots a lab of its own

GATES = ("GenericWorkload", "TopologyAwareWorkloadScheduling")
GROUP = "scheduling.k8s.io/v1beta1"
SCHEDULED = "PodGroupInitiallyScheduled"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Nodes with labels; KUBE_RDMA_TEST_POD_GROUPS=NAME takes a running lab."""
    folder, like = tmp_path_factory.mktemp("topology"), f"kubernetes-{Release.NEXT}"
    more = {"feature_gates": dict.fromkeys(GATES, True), "api_groups": {GROUP: True}}
    with labelled(folder, "test-pod-groups", like, release=str(Release.NEXT), **more) as made:
        yield made


def grouped(pods, *, together):
    """The example's group and job, with so many pods, on one leaf or anywhere."""
    group, job = example("podgroup")
    group["spec"]["schedulingPolicy"]["gang"]["minCount"] = pods
    if not together:
        del group["spec"]["schedulingConstraints"]
    return group, sized(job, pods)


def scheduled(lab):
    """The scheduler's word on the group: status, reason and message; none at first."""
    listed = cluster.get(lab, "podgroup", JOB).get("status", {}).get("conditions", ())
    said = (one for one in listed if one["type"] == SCHEDULED)
    return next(((one["status"], one["reason"], one["message"]) for one in said), None)


def test_the_scheduler_puts_eight_pods_on_the_leaf_that_has_room(lab):
    with applied(lab, *example("podgroup")):
        assert leaves_of(placed(lab, ROOM)) == {"leaf-b"}
        status, *_ = waiting.until(lab, "the scheduler's word", lambda: scheduled(lab))
        assert status == "True"


def test_nine_pods_wait_that_ask_for_one_leaf_and_run_otherwise(lab):
    """So it is the leaf that keeps them: the cards are there."""
    with applied(lab, *grouped(ROOM + 1, together=True)):
        waiting.until(lab, "nine pods", lambda: len(names_of(lab, JOB)) == ROOM + 1)
        word = waiting.until(lab, "the scheduler's word", lambda: scheduled(lab))
        status, reason, message = word
        assert (status, reason) == ("False", "Unschedulable")
        assert "0/2 placements are available" in message
        assert not [one for one in pods_of(lab, JOB) if "nodeName" in one["spec"]]
    with applied(lab, *grouped(ROOM + 1, together=False)):
        assert leaves_of(placed(lab, ROOM + 1)) == {"leaf-a", "leaf-b"}
