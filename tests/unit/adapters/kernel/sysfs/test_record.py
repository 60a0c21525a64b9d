"""A recorded node is the node: its survey is the same, and nothing else was taken along."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_rdma.adapters.kernel import link_view
from kube_rdma.adapters.kernel.link_view import LinkDevice, LinkPort, LinkView, merge
from kube_rdma.adapters.kernel.sysfs import record
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.device import PhysicalState, PortState
from kube_rdma.model.survey import Fault, NamespaceMode
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.tree import Damage, damaged, remove_device, write_tree
from tests.unit.adapters.kernel.sysfs.worlds import RDMA_CM, functions, worlds

TREES = sorted((Path(__file__).parents[4] / "data/trees").glob("*/tree.txt"))


def nothing():
    return None


@pytest.fixture(params=TREES, ids=lambda path: path.parent.name)
def tree(request, tmp_path):
    root = tmp_path / "sysfs"
    unpack(request.param.read_text(), root)
    return root


@pytest.fixture
def mlx5(tmp_path):
    root = tmp_path / "sysfs"
    unpack(next(t for t in TREES if t.parent.name == "mlx5-dual-port").read_text(), root)
    return root


def files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def test_the_copy_of_every_tree_has_the_same_survey(tree, tmp_path):
    copy = tmp_path / "copy"
    count, faults = record.record(tree, nothing, nothing, copy)
    assert read_survey(copy) == read_survey(tree)
    assert faults == ()
    links = [copy / name for name in files(copy) if (copy / name).is_symlink()]
    assert count == len(files(copy)) - len(links)
    for link in links:
        assert not link.readlink().is_absolute()
        assert os.path.realpath(link).startswith(f"{os.path.realpath(copy)}/")
    record.record(copy, nothing, nothing, tmp_path / "again")
    assert files(tmp_path / "again") == files(copy)


@settings(
    max_examples=settings().max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(devices=worlds(), data=st.data())
def test_any_node_that_a_kernel_can_show_is_copied(tmp_path, devices, data):
    source, copy = tmp_path / "source", tmp_path / "copy"
    for folder in (source, copy):
        shutil.rmtree(folder, ignore_errors=True)
    write_tree(source, devices, RDMA_CM, (), data.draw(functions(devices)))
    record.record(source, nothing, nothing, copy)
    assert read_survey(copy) == read_survey(source)


@settings(
    max_examples=settings().max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), how=st.sampled_from(Damage))
def test_damage_is_copied_too(mlx5, data, how):
    """The faults of the survey are the same, whatever is wrong with one file."""
    probe = mlx5.parent / "probe"
    if not probe.exists():
        record.record(mlx5, nothing, nothing, probe)
    names = [name for name in files(probe) if not (probe / name).is_symlink()]
    copy = mlx5.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    with damaged(mlx5, data.draw(st.sampled_from(names)), how):
        record.record(mlx5, nothing, nothing, copy)
        assert read_survey(copy) == read_survey(mlx5)


def test_nothing_but_what_is_listed_is_taken_along(mlx5, tmp_path):
    device = mlx5 / "class/infiniband/mlx5_0"
    for secret in ("node_desc", "password", "device/vpd", "device/config", "ports/1/pkeys/1"):
        (device / secret).parent.mkdir(exist_ok=True)
        (device / secret).write_text("secret")
    (mlx5 / "class/net/enp129s0f0np0/address").write_text("secret")
    (mlx5 / "kernel/notes").parent.mkdir()
    (mlx5 / "kernel/notes").write_text("secret")
    copy = tmp_path / "copy"
    record.record(mlx5, nothing, nothing, copy)
    assert not [n for n in files(copy) if b"secret" in (copy / n).read_bytes()]
    assert not (copy / "kernel/notes").exists()


def test_of_configurations_those_of_ports_above_functions_are_taken(mlx5, tmp_path):
    """They have ACS; a card's own has serial numbers."""
    card = (mlx5 / "class/infiniband/mlx5_0/device").resolve()
    for folder in (card, card.parent):
        (folder / "config").write_bytes(bytes(range(256)) * 16)
    copy = tmp_path / "copy"
    record.record(mlx5, nothing, nothing, copy)
    place = copy / card.relative_to(mlx5.resolve())
    assert (place.parent / "config").read_bytes() == bytes(range(256)) * 16
    assert not (place / "config").exists()


def test_unused_gids_are_left_out(mlx5, tmp_path):
    copy = tmp_path / "copy"
    record.record(mlx5, nothing, nothing, copy)
    gids = copy / "class/infiniband/mlx5_0/ports/1/gids"
    assert sorted(path.name for path in gids.iterdir()) == ["0", "1", "2", "3", "5"]


def test_links_in_circles_and_links_out_of_the_tree_are_not_followed(mlx5, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/node_type").write_text("1: CA\n")
    devices = mlx5 / "class/infiniband"
    (devices / "loop").symlink_to("loop")
    (devices / "self").symlink_to(".")
    (devices / "away").symlink_to("../../../outside")
    (devices / "absolute").symlink_to(tmp_path / "outside")
    (devices / "mlx5_0/ports/1/gids/again").symlink_to("..")
    copy = tmp_path / "copy"
    _, faults = record.record(mlx5, nothing, nothing, copy)
    assert {fault.path for fault in faults} == {
        "class/infiniband/absolute",
        "class/infiniband/away",
    }
    assert {fault.reason for fault in faults} == {"leads out of the tree"}
    names = [device.name for device in read_survey(copy).devices]
    assert names == [device.name for device in read_survey(mlx5).devices]


def test_a_pipe_does_not_block(mlx5, tmp_path):
    state = mlx5 / "class/infiniband/mlx5_0/ports/1/state"
    state.unlink()
    os.mkfifo(state)
    record.record(mlx5, nothing, nothing, tmp_path / "copy")
    assert read_survey(tmp_path / "copy") == read_survey(mlx5)


def test_a_name_that_is_not_text_is_copied_as_it_is(mlx5, tmp_path):
    (mlx5 / os.fsdecode(b"class/infiniband/\xff\n")).mkdir()
    record.record(mlx5, nothing, nothing, tmp_path / "copy")
    assert (tmp_path / "copy" / os.fsdecode(b"class/infiniband/\xff\n")).is_dir()


def test_an_unplugged_card_and_an_empty_tree(mlx5, tmp_path):
    remove_device(mlx5, "mlx5_1")
    record.record(mlx5, nothing, nothing, tmp_path / "copy")
    assert read_survey(tmp_path / "copy") == read_survey(mlx5)
    (tmp_path / "empty/class").mkdir(parents=True)
    assert record.record(tmp_path / "empty", nothing, nothing, tmp_path / "none") == (0, ())
    assert (tmp_path / "none/class").is_dir()


def test_a_folder_that_is_not_empty_is_refused_untouched(mlx5, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/mine").write_text("mine")
    with pytest.raises(Refused, match="is not empty") as caught:
        record.record(mlx5, nothing, nothing, tmp_path / "copy")
    assert caught.value.remedy == "Give the name of a new folder"
    assert files(tmp_path / "copy") == ["mine"]


def test_a_place_that_cannot_be_written_is_refused(mlx5, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot be written: Not a directory"):
        record.record(mlx5, nothing, nothing, tmp_path / "file/copy")


def test_an_empty_folder_is_taken(mlx5, tmp_path):
    (tmp_path / "copy").mkdir()
    assert record.record(mlx5, nothing, nothing, tmp_path / "copy")[0] > 0


LINKS = LinkView(
    devices=(
        LinkDevice(
            4,
            "mlx5_0",
            "16.35.4506",
            (
                LinkPort(1, PortState.DOWN, PhysicalState.DISABLED, "enp129s0f0np0"),
                LinkPort(2, None, None, None),
            ),
            "02:00:0a:00:00:00:00:01",
        ),
        LinkDevice(5, "mlx5_1", None),
    ),
    namespace_mode=NamespaceMode.EXCLUSIVE,
    faults=(Fault("RDMA netlink, ports of mlx5_1", "no such device"),),
)


def test_what_netlink_said_is_said_again(mlx5, tmp_path):
    copy = tmp_path / "copy"
    record.record(mlx5, lambda: LINKS, nothing, copy)
    assert link_view.recorded_links(copy) == LINKS
    assert merge(read_survey(copy), link_view.recorded_links(copy)) == merge(
        read_survey(mlx5), LINKS
    )


def test_what_netlink_refused_is_refused_again(mlx5, tmp_path):
    def refuse():
        raise Unavailable("the kernel offers no RDMA netlink")

    record.record(mlx5, refuse, refuse, tmp_path / "copy")
    with pytest.raises(Unavailable, match=r"^the kernel offers no RDMA netlink$"):
        link_view.recorded_links(tmp_path / "copy")
    with pytest.raises(Unavailable, match=r"^the kernel offers no RDMA netlink$"):
        link_view.recorded_routes(tmp_path / "copy")


def test_default_routes_are_said_again(mlx5, tmp_path):
    record.record(mlx5, nothing, lambda: ("bond0", "eth0"), tmp_path / "copy")
    assert link_view.recorded_routes(tmp_path / "copy") == ("bond0", "eth0")
    record.record(tmp_path / "copy", nothing, lambda: (), tmp_path / "none")
    assert link_view.recorded_routes(tmp_path / "none") == ()


def test_a_tree_without_the_file_says_nothing_of_netlink(mlx5):
    assert link_view.recorded_links(mlx5) is None
    assert link_view.recorded_routes(mlx5) is None


GOOD = {"devices": [], "namespace_mode": "shared", "faults": []}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '"unavailable"',
        "{}",
        "\x00",
        "[" * 100_000,
        json.dumps({**GOOD, "namespace_mode": "both"}),
        json.dumps({**GOOD, "devices": [3]}),
        json.dumps({**GOOD, "devices": [{"index": "one", "name": "x", "firmware": None}]}),
        json.dumps({**GOOD, "devices": {"index": 1}}),
        json.dumps({**GOOD, "faults": [{}]}),
    ],
)
def test_a_file_that_was_not_recorded_is_refused(tmp_path, text):
    (tmp_path / link_view.NETLINK_FILE).write_text(text)
    with pytest.raises(Refused, match="is not what --record writes") as caught:
        link_view.recorded_links(tmp_path)
    assert caught.value.where == str(tmp_path / link_view.NETLINK_FILE)


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"interfaces": 3}'])
def test_routes_that_were_not_recorded_are_refused(tmp_path, text):
    (tmp_path / link_view.ROUTES_FILE).write_text(text)
    with pytest.raises(Refused, match="is not what --record writes") as caught:
        link_view.recorded_routes(tmp_path)
    assert caught.value.where == str(tmp_path / link_view.ROUTES_FILE)
