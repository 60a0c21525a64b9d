"""What the doctor reads of a pod's control group, in a folder that looks like a node's."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma.doctor.pod import observed_limits
from kube_rdma.model.doctor import ObservedLimit

UID = "5e0b-8e3c"


@pytest.fixture
def group(tmp_path):
    """The group of a pod, with one limited device and a free one."""
    root = tmp_path / "sys/fs/cgroup"
    group = root / f"kubepods/pod{UID}"
    group.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu rdma\n")
    (group / "rdma.max").write_text(
        "mlx5_0 hca_handle=4 hca_object=100 \nmlx5_1 hca_handle=max hca_object=max \n"
    )
    (group / "rdma.current").write_text(
        "mlx5_0 hca_handle=1 hca_object=20 \nmlx5_1 hca_handle=0 hca_object=0 \n"
    )
    return group


def test_what_a_pod_has_stands_beside_what_it_may_have(group, tmp_path):
    limited, free = observed_limits(tmp_path, UID)
    assert limited == ObservedLimit("mlx5_0", 1, 20, 4, 100)
    assert free == ObservedLimit("mlx5_1")
    assert (limited.is_set, free.is_set, limited.used_up) == (True, False, "")


def test_a_pod_of_another_node_has_none_here(group, tmp_path):
    assert observed_limits(tmp_path, "another") == ()


def test_a_node_of_cgroup_v1_has_none(group, tmp_path):
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").unlink()
    assert observed_limits(tmp_path, UID) == ()


def test_where_the_controller_is_off_nothing_is_limited(group, tmp_path):
    (group / "rdma.max").unlink()
    assert observed_limits(tmp_path, UID) == ()


def test_what_cannot_be_read_is_not_taken_for_no_limit(group, tmp_path):
    (group / "rdma.max").unlink()
    (group / "rdma.max").mkdir()
    with pytest.raises(Unavailable, match="cannot be read or written"):
        observed_limits(tmp_path, UID)
