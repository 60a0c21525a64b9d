"""When the limits of a pod's shares are well; what is ill is planted in test_faults."""

from kube_base.frozen import replace
from kube_rdma.model.doctor import ObservedLimit
from tests.unit.doctor.rules.healthy import HEALTHY, POD
from tests.unit.doctor.rules.test_faults import FAULTS, codes, limited


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
