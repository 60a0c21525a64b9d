"""Two pods on one card, one GID index in their image: right for one of them, KR420 for the other.

As README of s1-vke tells whose image has an nccl_env.sh or an index of its own. In the RDMA
namespace mode `shared` each sees the GIDs of both, on an interface of the same name.
"""

from kube_base.frozen import replace
from kube_rdma.doctor.rules.diagnose import diagnose
from kube_rdma.model.device import Gid, GidType
from tests.unit.doctor.rules.healthy import CONTAINER, DEVICE, INSIDE, POD, WITH_POD

FIRST, SECOND = "10.0.1.1", "10.0.1.2"
GIDS = tuple(
    Gid(index, f"0000:0000:0000:0000:0000:ffff:0a00:{last}", GidType.ROCE_V2, "net1")
    for index, last in ((5, "0101"), (7, "0102"))
)
BOTH = replace(
    INSIDE,
    devices=(replace(DEVICE, ports=(replace(DEVICE.ports[0], gids=GIDS),)), *INSIDE.devices[1:]),
)


def told(address, index):
    """The findings of KR420 about the pod that has this address, with this index in its image."""
    links = (POD.links[0], replace(POD.links[1], addresses=(f"{address}/16",)))
    container = replace(CONTAINER, variables=(("NCCL_IB_GID_INDEX", index),))
    pod = replace(POD, links=links, survey=BOTH, containers=(container,))
    found = diagnose(replace(WITH_POD, pod=pod)).findings
    return [each.problem for each in found if each.code == "KR420"]


def test_the_index_is_right_for_one_of_them():
    assert told(FIRST, "5") == []
    (problem,) = told(SECOND, "5")
    assert problem == f"NCCL_IB_GID_INDEX=5, and {DEVICE.name} has the pod's addresses at 7"


def test_each_is_well_with_its_own():
    assert (told(FIRST, "5"), told(SECOND, "7")) == ([], [])
