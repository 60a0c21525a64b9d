"""Settings of NCCL and UCX: whole names of the devices used, and a GID index where it is one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.attach.rules.settings import (
    ANNOTATION,
    NONE,
    TOPOLOGY,
    TOPOLOGY_FILE,
    as_asked,
    settings_files,
)
from kube_rdma.model.late_binding import UsedDevice
from kube_rdma.model.settings import FabricProfile, PlacedNet

DEVICES = st.builds(
    UsedDevice,
    name=st.sampled_from([f"mlx5_{n}" for n in range(12)]),
    port=st.integers(1, 2),
    interface=st.sampled_from(["net1", "net2"]),
    infiniband=st.booleans(),
    gid_index=st.none() | st.integers(0, 255),
)


def variables(text):
    """As NCCL and UCX read a file: a name to the first `=`, and the rest."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def both(*used):
    files = settings_files(used)
    return variables(files["nccl.conf"]), variables(files["ucx.conf"])


def roce(name, gid_index=3, port=1):
    return UsedDevice(name, port, "net1", gid_index=gid_index)


PLACED = (replace(roce("mlx5_0"), place=PlacedNet("mlx5_0", None, 1)),)


def test_two_cards_with_one_index():
    nccl, ucx = both(roce("mlx5_0"), roce("mlx5_1"))
    assert nccl == {"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_IB_GID_INDEX": "3"}
    assert ucx == {
        "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1",
        "UCX_IB_GID_INDEX": "3",
        "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
    }


@pytest.mark.parametrize(
    ("first", "second", "shown"), [(3, 5, "mlx5_0 3, mlx5_1 5"), (3, None, "mlx5_0 3, mlx5_1 none")]
)
def test_where_indexes_differ_none_is_guessed(first, second, shown):
    used = roce("mlx5_0", first), roce("mlx5_1", second)
    nccl, ucx = both(*used)
    assert "NCCL_IB_GID_INDEX" not in nccl
    assert "UCX_IB_GID_INDEX" not in ucx
    files = settings_files(used)
    for text in (files["nccl.conf"], files["ucx.conf"]):
        assert f"theirs are: {shown}." in text


def test_infiniband_needs_no_index():
    nccl, ucx = both(UsedDevice("ibp1", 2, "net1", infiniband=True))
    assert (nccl, ucx) == ({"NCCL_IB_HCA": "=ibp1:2"}, {"UCX_NET_DEVICES": "ibp1:2"})


def test_without_devices_there_is_nothing_to_say():
    assert settings_files(()) == {}


@given(st.lists(DEVICES, min_size=1, max_size=16))
def test_every_device_once_and_an_index_that_all_have(used):
    nccl, ucx = both(*used)
    ports = nccl["NCCL_IB_HCA"].removeprefix("=").split(",")
    assert nccl["NCCL_IB_HCA"].startswith("=")
    assert sorted(ports) == sorted({f"{one.name}:{one.port}" for one in used})
    assert ucx["UCX_NET_DEVICES"].split(",") == ports
    indexes = {one.gid_index for one in used if not one.infiniband}
    if len(indexes) == 1 and None not in indexes:
        assert {nccl["NCCL_IB_GID_INDEX"], ucx["UCX_IB_GID_INDEX"]} == set(map(str, indexes))
    else:
        assert "NCCL_IB_GID_INDEX" not in nccl
        assert "UCX_IB_GID_INDEX" not in ucx
    assert ("UCX_UD_VERBS_ETH_DGID_CHECK" in ucx) == (not all(one.infiniband for one in used))
    for text in settings_files(used).values():
        assert re.fullmatch(r"(?:[^\n]+\n)+", text)


@pytest.mark.parametrize("annotations", [{}, {ANNOTATION: "all"}, {"another": TOPOLOGY}])
def test_a_pod_gets_settings_without_a_word(annotations):
    assert as_asked(PLACED, annotations) == (roce("mlx5_0"),)


def test_a_pod_may_do_without_or_ask_for_the_topology():
    assert as_asked(PLACED, {ANNOTATION: NONE}) == ()
    assert as_asked(PLACED, {ANNOTATION: TOPOLOGY}) == PLACED


def test_nccl_is_told_of_its_topology_file():
    files = settings_files((roce("mlx5_0"),), topology="<system/>\n")
    assert files[TOPOLOGY_FILE] == "<system/>\n"
    path = variables(files["nccl.conf"])["NCCL_TOPO_FILE"]
    assert path == f"/etc/kube-rdma/{TOPOLOGY_FILE}"
    files = settings_files((roce("mlx5_0"),))
    assert TOPOLOGY_FILE not in files
    assert "NCCL_TOPO_FILE" not in variables(files["nccl.conf"])


def test_what_the_fabric_says_is_said_to_both():
    """UCX has a time where NCCL has an exponent (4.096 µs × 2^timeout)."""
    fabric = FabricProfile(
        106, 3, 20, 5, 4, (("NCCL_IB_AR_THRESHOLD", "0"), ("UCX_RNDV_THRESH", "8k"))
    )
    files = settings_files((roce("mlx5_0"),), fabric)
    nccl, ucx = variables(files["nccl.conf"]), variables(files["ucx.conf"])
    assert nccl == {
        "NCCL_IB_HCA": "=mlx5_0:1",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_TC": "106",
        "NCCL_IB_SL": "3",
        "NCCL_IB_TIMEOUT": "20",
        "NCCL_IB_RETRY_CNT": "5",
        "NCCL_IB_QPS_PER_CONNECTION": "4",
        "NCCL_IB_AR_THRESHOLD": "0",
    }
    assert ucx == {
        "UCX_NET_DEVICES": "mlx5_0:1",
        "UCX_IB_GID_INDEX": "3",
        "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
        "UCX_IB_TRAFFIC_CLASS": "106",
        "UCX_IB_SL": "3",
        "UCX_RC_TIMEOUT": "4294967.296us",
        "UCX_RC_RETRY_COUNT": "5",
        "UCX_RNDV_THRESH": "8k",
    }


def test_a_fabric_that_says_nothing_changes_nothing():
    used = (roce("mlx5_0"),)
    assert settings_files(used, FabricProfile()) == settings_files(used)
