"""GIDs as sysfs shows them: found wherever they are, waited for, missed with figures."""

from __future__ import annotations

import errno
from ipaddress import ip_address
from threading import Thread

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel.pod import gids
from kube_rdma.adapters.kernel.pod.gids import await_gid, crowded, gid_table, listed, pci_of
from kube_rdma.adapters.kernel.sysfs import files
from kube_rdma.model.attach.attachment import GidTable
from kube_rdma.model.attach.steps import AwaitGid
from kube_rdma.model.ipam import gid_of

V4 = ip_address("10.9.0.1")
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"
STEP = AwaitGid("mlx5_0", "net1", V4)


def put(root, index, gid, kind="RoCE v2", netdev="net1", port=1):
    """One entry of a table; the kernel has files for empty ones that cannot be read."""
    base = root / f"mlx5_0/ports/{port}"
    for folder, text in (("gid_attrs/types", kind), ("gid_attrs/ndevs", netdev), ("gids", gid)):
        path = base / folder / str(index)
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(f"{text}\n")


def table(root, size, port=1):
    for index in range(size):
        put(root, index, EMPTY, None, None, port)


def test_the_gid_of_an_address_is_spelled_as_sysfs_does():
    assert gid_of(V4) == "0000:0000:0000:0000:0000:ffff:0a09:0001"
    assert gid_of(ip_address("fe80::1")) == "fe80:0000:0000:0000:0000:0000:0000:0001"


@pytest.mark.parametrize("index", [0, 3, 20, 63])
def test_a_gid_is_found_behind_any_gap(tmp_path, index):
    table(tmp_path, 64)
    put(tmp_path, index, gid_of(V4))
    await_gid(STEP, tmp_path, patience=3)
    assert listed(tmp_path, "mlx5_0") == (("net1", V4),)


def test_unused_entries_that_cannot_be_read_end_no_table(tmp_path, monkeypatch):
    """Before Linux 4.19 the kernel answers EINVAL for them."""
    table(tmp_path, 4)
    put(tmp_path, 2, gid_of(V4))

    def old(path):
        if (data := files.read_file(path)).strip() == EMPTY.encode():
            raise OSError(errno.EINVAL, "Invalid argument", path)
        return data

    monkeypatch.setattr(gids, "read_file", old)
    await_gid(STEP, tmp_path, patience=0)
    assert listed(tmp_path, "mlx5_0") == (("net1", V4),)
    assert gid_table("mlx5_0", tmp_path).used == 1
    assert crowded({"mlx5_0": 1}, tmp_path) == ()
    assert [one.used for one in crowded({"mlx5_0": 2}, tmp_path)] == [1]


def test_the_second_port_counts_too(tmp_path):
    table(tmp_path, 4)
    table(tmp_path, 4, port=2)
    put(tmp_path, 0, gid_of(V4), port=2)
    await_gid(STEP, tmp_path, patience=0)


@pytest.mark.parametrize(
    ("kind", "netdev"), [("IB/RoCE v1", "net1"), ("RoCE v2", "net2"), ("RoCE v2", None)]
)
def test_only_a_routable_gid_of_this_interface_counts(tmp_path, kind, netdev):
    table(tmp_path, 4)
    put(tmp_path, 1, gid_of(V4), kind, netdev)
    with pytest.raises(Unavailable, match=r"no RoCE v2 GID for 10\.9\.0\.1 on net1 after 0 s"):
        await_gid(STEP, tmp_path, patience=0)


def test_a_text_that_is_no_gid_is_none(tmp_path):
    put(tmp_path, 0, "no gid")
    put(tmp_path, 1, gid_of(V4))
    assert listed(tmp_path, "mlx5_0") == (("net1", V4),)


def test_a_gid_that_comes_later_is_waited_for(tmp_path):
    table(tmp_path, 4)
    later = Thread(target=put, args=(tmp_path, 2, gid_of(V4)))
    later.start()
    await_gid(STEP, tmp_path, patience=30)
    later.join()


def test_a_full_table_is_refused_and_one_with_room_is_not(tmp_path):
    for index in range(4):
        put(tmp_path, index, gid_of(V4 + 1 + index), "IB/RoCE v1" if index % 2 else "RoCE v2")
    with pytest.raises(Refused, match="4 of 4 GIDs are used"):
        await_gid(STEP, tmp_path, patience=0)
    assert gid_table("mlx5_0", tmp_path) == GidTable("mlx5_0", 4, 4, versions=2)
    put(tmp_path, 3, EMPTY)
    with pytest.raises(Unavailable):
        await_gid(STEP, tmp_path, patience=0)
    assert gid_table("mlx5_0", tmp_path).used == 3


def test_only_a_table_that_may_have_no_room_is_told(tmp_path):
    """An address may need an entry of either version, wherever they are."""
    for index in range(8):
        put(tmp_path, index, gid_of(V4 + 1 + index) if index in (0, 1, 4, 5) else EMPTY)
    assert crowded({"mlx5_0": 2}, tmp_path) == ()
    (table,) = crowded({"mlx5_0": 3}, tmp_path)
    assert (table.size, table.used) == (8, 4)
    put(tmp_path, 0, gid_of(V4), port=2)
    assert [one.device for one in crowded({"mlx5_0": 1}, tmp_path)] == ["mlx5_0"]


def test_a_device_that_is_not_there_is_unavailable(tmp_path):
    for look in (lambda: await_gid(STEP, tmp_path), lambda: gid_table("mlx5_0", tmp_path)):
        with pytest.raises(Unavailable, match="no RDMA device mlx5_0"):
            look()
    assert listed(tmp_path, "mlx5_0") == ()


def test_a_device_on_a_function_tells_its_address(tmp_path):
    (tmp_path / "0000:81:00.0").mkdir()
    table(tmp_path, 1)
    (tmp_path / "mlx5_0/device").symlink_to("../0000:81:00.0")
    assert pci_of(tmp_path, "mlx5_0") == "0000:81:00.0"
    assert pci_of(tmp_path, "rxe0") is None
