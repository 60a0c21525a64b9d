"""The way of settings into a container, and what is told where nobody knows its pod yet."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.attach.rules.settings import (
    BIN,
    SettingsWay,
    cdi_device,
    folder_name,
    mounts,
    pool_files,
    way,
)
from kube_rdma.model.late_binding import UsedDevice
from kube_rdma.model.pools import Attach, FileMount
from kube_rdma.model.settings import FabricProfile
from tests.unit.attach.rules.test_files import variables

CARDS = tuple(UsedDevice(f"mlx5_{n}", 1, "") for n in range(2))
DEVICES = st.lists(
    st.builds(
        UsedDevice,
        name=st.from_regex(r"[a-z][a-z0-9_.-]{0,30}", fullmatch=True),
        port=st.just(1),
        interface=st.just(""),
    ),
    max_size=16,
)
RESOURCES = st.from_regex(r"[a-z][a-z0-9.-]{0,60}/[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", fullmatch=True)


@pytest.mark.parametrize("shim", [True, False])
@pytest.mark.parametrize("cdi", [True, False])
@pytest.mark.parametrize("attach", Attach)
def test_every_container_gets_its_settings_one_way(attach, cdi, shim):
    """docs/settings.md has this table."""
    if not (cdi and shim):
        assert way(attach, cdi=cdi, shim=shim) is SettingsWay.MOUNTED
    else:
        expected = SettingsWay.NAMED if attach is Attach.NONE else SettingsWay.BOUND
        assert way(attach, cdi=cdi, shim=shim) is expected


def test_the_only_resource_of_a_node_names_its_devices():
    files = pool_files(CARDS, FabricProfile(traffic_class=106), alone=True)
    assert variables(files["nccl.conf"]) == {
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "NCCL_IB_TC": "106",
    }
    assert variables(files["ucx.conf"]) == {
        "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1",
        "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
        "UCX_IB_TRAFFIC_CLASS": "106",
    }
    assert "# No GID index" in files["nccl.conf"]


def test_one_of_several_resources_names_none():
    """A container may hold the others too, and NCCL would take those of one file alone."""
    files = pool_files(CARDS, None, alone=False)
    assert variables(files["nccl.conf"]) == {}
    assert variables(files["ucx.conf"]) == {"UCX_UD_VERBS_ETH_DGID_CHECK": "n"}
    assert "other resources" in files["nccl.conf"]


def test_infiniband_needs_no_word_about_indexes():
    files = pool_files((UsedDevice("ibp1", 1, "", infiniband=True),), None, alone=True)
    assert "GID" not in files["nccl.conf"]
    assert variables(files["ucx.conf"]) == {"UCX_NET_DEVICES": "ibp1:1"}


@given(resource=RESOURCES, used=DEVICES)
def test_a_folder_is_a_name_of_its_own_and_so_is_its_device(resource, used):
    """File names have 255 bytes at most, and names of CDI devices few signs."""
    name = folder_name(resource, used)
    assert "/" not in name
    assert len(name) <= 120
    assert name != BIN
    kind, _, device = cdi_device(name).partition("=")
    assert kind == "kube-rdma.io/settings"
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device)
    assert len(device) <= 140


def test_other_devices_are_another_folder():
    names = {folder_name("rdma/a", used) for used in (CARDS, CARDS[:1], CARDS[1:], ())}
    assert len(names) == 4


def test_a_container_finds_each_resource_and_the_script_at_its_place():
    assert mounts("rdma/a", "/host/a", "/host/bin") == (
        FileMount("/host/bin", "/usr/share/kube-rdma/bin"),
        FileMount("/host/a", "/usr/share/kube-rdma/rdma/a"),
    )
