"""Use of RDMA by programs, and limits of a pod that are well; test_faults plants the ill ones."""

import pytest

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.doctor.views import doctor_document, doctor_page
from kube_rdma.lib.page import page_text
from kube_rdma.model.doctor import ObservedLimit, ObservedQueuePairs
from kube_rdma.model.finding import Severity
from tests.unit.doctor.rules.healthy import (
    CONTAINER,
    HEALTHY,
    POD,
    SPEC,
    WITH_POD,
    with_container,
    with_pod,
)
from tests.unit.doctor.rules.test_faults import FAULTS, codes, limited

PAIRS = (
    ObservedQueuePairs("main", "mlx5_0", "RC", 4, 3, ("ib_write_bw",)),
    ObservedQueuePairs("main", "mlx5_0", "UD", 1, 1),
)
IDLE = replace(CONTAINER, pinned=0)


def seen_with(pairs, container=CONTAINER, **more):
    return with_pod(queue_pairs=pairs, containers=(container,), **more)


def unused(seen):
    return [one for one in diagnose(seen).findings if one.code == "KR433"]


@pytest.mark.parametrize(
    "seen",
    [
        with_container(pinned=4096),  # the processes alone were seen
        seen_with((), CONTAINER),  # memory is pinned for something
        seen_with(PAIRS, IDLE),  # memory on demand is not pinned
        seen_with((), IDLE, phase="Succeeded"),
        with_container(pinned=0, asks=()),  # it has no card
    ],
)
def test_a_container_that_uses_its_card_is_well(seen):
    assert unused(seen) == []


def test_a_container_that_uses_none_is_told_with_what_was_seen():
    """From an agent the queue pairs are not in sight, so nothing is said of them."""
    (blind,) = unused(with_pod(containers=(IDLE,)))
    (whole,) = unused(seen_with((), IDLE))
    assert (blind.subject, blind.severity) == ("main", Severity.ADVICE)
    assert "queue pair" not in blind.problem
    assert "none has a queue pair" in whole.problem
    assert "transport" in blind.cause


@pytest.mark.parametrize("resource", ["vpc.amazonaws.com/efa", "rdma/nic"])
def test_a_share_of_the_nodes_pool_counts_whatever_its_name(resource):
    seen = with_pod(containers=(replace(IDLE, asks=((resource, 1),)),))
    assert unused(replace(seen, specs=(replace(SPEC, resource=resource),)))
    assert bool(unused(seen)) == resource.startswith("rdma/")


def test_what_it_was_told_stands_beside_what_it_does():
    told = replace(IDLE, variables=(("UCX_TLS", "rc"), ("NCCL_NET", "IB"), ("HOME", "/")))
    (finding,) = unused(seen_with((), told))
    assert finding.problem.endswith("although it has UCX_TLS=rc and NCCL_NET=IB")


def test_queue_pairs_of_another_container_are_not_its_own():
    assert len(unused(seen_with((replace(PAIRS[0], container="sidecar"),), IDLE))) == 1


def page(seen):
    return " ".join(page_text(doctor_page(seen, diagnose(seen)), 100).split())


def test_the_page_says_what_is_in_use():
    shown = page(seen_with(PAIRS))
    assert "In use by main: 4 RC queue pairs on mlx5_0 of ib_write_bw, 3 connected" in shown
    assert "1 UD queue pair on mlx5_0, 1 connected; 64.0 MiB of memory pinned." in shown
    assert "No queue pair on" not in shown
    away = tuple(replace(one, device="mlx5_1") for one in PAIRS)
    assert "No queue pair on mlx5_0." in page(seen_with(away))
    assert "In use by main: 64.0 MiB of memory pinned." in page(WITH_POD)


def test_programs_read_the_same():
    (own,) = doctor_document(seen_with(PAIRS), diagnose(seen_with(PAIRS)))["uses"]
    assert (own["container"], own["pinnedBytes"]) == ("main", 64 << 20)
    assert [one["type"] for one in own["queuePairs"]] == ["RC", "UD"]
    (blind,) = doctor_document(WITH_POD, diagnose(WITH_POD))["uses"]
    assert blind["queuePairs"] is None
    assert POD.queue_pairs is None


def test_limits_that_the_kernel_holds_and_that_leave_room_are_well():
    """A pool without limits is well whatever the kernel shows, and so is a pod without shares."""
    devices = [one.name for one in POD.survey.devices]
    roomy = limited(*(ObservedLimit(name, 1, 20, 4, 100) for name in devices))
    assert "KR432" not in codes(roomy)
    assert "KR432" not in codes(replace(FAULTS["limits used up"][1], specs=HEALTHY.specs))
    idle = replace(HEALTHY.kubelet, holdings=())
    assert "KR432" not in codes(replace(FAULTS["limits that nobody wrote"][1], kubelet=idle))


def test_what_is_used_up_is_said_in_numbers():
    both = ObservedLimit("mlx5_0", 4, 100, 4, 100)
    assert both.used_up == "all 4 handles and all 100 objects"
    assert ObservedLimit("mlx5_0", 4, 100, None, 101).used_up == ""
