"""Queue pairs counted by container, and what processes have pinned by the files of /proc."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma.adapters.kernel import proc
from kube_rdma.doctor.pod import counted_pairs
from kube_rdma.model.device import QueuePair
from kube_rdma.model.doctor import ObservedQueuePairs

CONTAINERS = {7: "main", 8: "main", 9: "sidecar"}
PROGRAMS = {7: "ib_write_bw", 8: "python", 9: ""}


def test_pairs_are_counted_by_container_device_and_transport():
    pairs = (
        QueuePair("mlx5_1", "UD", 9),
        QueuePair("mlx5_0", "RC", 7, ready=True),
        QueuePair("mlx5_0", "RC", 8),
        QueuePair("mlx5_0", "RC", 10, ready=True),  # of another pod
    )
    counts = counted_pairs(pairs, lambda pid: CONTAINERS.get(pid, ""), PROGRAMS.__getitem__)
    assert counts == (
        ObservedQueuePairs("main", "mlx5_0", "RC", 2, 1, ("ib_write_bw", "python")),
        ObservedQueuePairs("sidecar", "mlx5_1", "UD", 1, 0, ()),
    )


def test_a_process_says_what_it_has_pinned(tmp_path):
    for pid, status in ((7, "VmLck:\t 12 kB\nVmPin:\t     2048 kB\n"), (8, "VmLck:\t 12 kB\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/status").write_text(status)
    (tmp_path / "7/comm").write_text("ib\x1b[31m\n")
    assert proc.pinned(7, tmp_path) == 2048 * 1024
    with pytest.raises(Unavailable, match="pinned"):
        proc.pinned(8, tmp_path)
    assert (proc.program(7, tmp_path), proc.program(8, tmp_path)) == ("ib?[31m", "")
