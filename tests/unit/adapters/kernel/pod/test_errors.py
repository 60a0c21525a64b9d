"""What the kernel's numbers mean for a Step."""

import errno

import pytest

from kube_rdma.adapters.kernel.pod import errors
from kube_rdma.model.attach.steps import MakeLink, Mark, VirtualKind
from kube_rdma.model.device import PlannedHostLink
from kube_rdma.model.ipam import InterfaceName
from kube_rdma_testing.kernel.network import refusal


@pytest.mark.parametrize(
    ("kind", "code", "other"),
    [
        (VirtualKind.MACVLAN, errno.EBUSY, "ipvlan"),
        (VirtualKind.IPVLAN, errno.EBUSY, "macvlan"),
        (VirtualKind.IPOIB, errno.EBUSY, None),
        (VirtualKind.MACVLAN, errno.ENOMEM, None),
    ],
)
def test_a_busy_parent_is_said_to_have_links_of_the_other_kind(kind, code, other):
    """It may be free again when other pods end, so the runtime tries once more."""
    step = MakeLink(kind, PlannedHostLink(7, "ens1"), InterfaceName("net1"), Mark("m"))
    found = errors.busy_parent("macvlan net1 on ens1", step, refusal(code))
    assert (found is not None) is (other is not None)
    assert found is None or f"ens1 has {other} interfaces of other pods" in str(found)
