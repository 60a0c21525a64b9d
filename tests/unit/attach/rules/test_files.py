"""Settings of a container: devices that it uses, files that name them, and the way into it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.attach.rules import settings
from kube_rdma.model.device import LinkLayer, PortState
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import Edits, UsedDevice
from kube_rdma.model.pools import Attach, FileMount
from kube_rdma.model.settings import FabricProfile, PlacedNet
from tests.kit.pod_networks import card

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
    files = settings.settings_files(used)
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
    files = settings.settings_files(used)
    for text in (files["nccl.conf"], files["ucx.conf"]):
        assert f"theirs are: {shown}." in text


def test_infiniband_needs_no_index():
    nccl, ucx = both(UsedDevice("ibp1", 2, "net1", infiniband=True))
    assert (nccl, ucx) == ({"NCCL_IB_HCA": "=ibp1:2"}, {"UCX_NET_DEVICES": "ibp1:2"})


def test_without_devices_there_is_nothing_to_say():
    assert settings.settings_files(()) == {}


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
    for text in settings.settings_files(used).values():
        assert re.fullmatch(r"(?:[^\n]+\n)+", text)


@pytest.mark.parametrize(
    "annotations", [{}, {settings.ANNOTATION: "all"}, {"another": settings.TOPOLOGY}]
)
def test_a_pod_gets_settings_without_a_word(annotations):
    assert settings.as_asked(PLACED, annotations) == (roce("mlx5_0"),)


def test_a_pod_may_do_without_or_ask_for_the_topology():
    assert settings.as_asked(PLACED, {settings.ANNOTATION: settings.NONE}) == ()
    assert settings.as_asked(PLACED, {settings.ANNOTATION: settings.TOPOLOGY}) == PLACED


def test_nccl_is_told_of_its_topology_file():
    files = settings.settings_files((roce("mlx5_0"),), topology="<system/>\n")
    assert files[settings.TOPOLOGY_FILE] == "<system/>\n"
    path = variables(files["nccl.conf"])["NCCL_TOPO_FILE"]
    assert path == f"/etc/kube-rdma/{settings.TOPOLOGY_FILE}"
    files = settings.settings_files((roce("mlx5_0"),))
    assert settings.TOPOLOGY_FILE not in files
    assert "NCCL_TOPO_FILE" not in variables(files["nccl.conf"])


def test_what_the_fabric_says_is_said_to_both():
    """UCX has a time where NCCL has an exponent (4.096 µs × 2^timeout)."""
    fabric = FabricProfile(
        106, 3, 20, 5, 4, (("NCCL_IB_AR_THRESHOLD", "0"), ("UCX_RNDV_THRESH", "8k"))
    )
    files = settings.settings_files((roce("mlx5_0"),), fabric)
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
    assert settings.settings_files(used, FabricProfile()) == settings.settings_files(used)


CARDS = tuple(UsedDevice(f"mlx5_{n}", 1, "") for n in range(2))
ANY_DEVICES = st.lists(
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
    if not (cdi and shim):
        assert settings.way(attach, cdi=cdi, shim=shim) is settings.SettingsWay.MOUNTED
    else:
        expected = (
            settings.SettingsWay.NAMED if attach is Attach.NONE else settings.SettingsWay.BOUND
        )
        assert settings.way(attach, cdi=cdi, shim=shim) is expected


def test_the_only_resource_of_a_node_names_its_devices():
    files = settings.pool_files(CARDS, FabricProfile(traffic_class=106), alone=True)
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
    files = settings.pool_files(CARDS, None, alone=False)
    assert variables(files["nccl.conf"]) == {}
    assert variables(files["ucx.conf"]) == {"UCX_UD_VERBS_ETH_DGID_CHECK": "n"}
    assert "other resources" in files["nccl.conf"]


def test_infiniband_needs_no_word_about_indexes():
    files = settings.pool_files((UsedDevice("ibp1", 1, "", infiniband=True),), None, alone=True)
    assert "GID" not in files["nccl.conf"]
    assert variables(files["ucx.conf"]) == {"UCX_NET_DEVICES": "ibp1:1"}


@given(resource=RESOURCES, used=ANY_DEVICES)
def test_a_folder_is_a_name_of_its_own_and_so_is_its_device(resource, used):
    """File names have 255 bytes at most, and names of CDI devices few signs."""
    name = settings.folder_name(resource, used)
    assert "/" not in name
    assert len(name) <= 120
    assert name != settings.BIN
    kind, _, device = settings.cdi_device(name).partition("=")
    assert kind == "kube-rdma.io/settings"
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", device)
    assert len(device) <= 140


def test_other_devices_are_another_folder():
    names = {settings.folder_name("rdma/a", used) for used in (CARDS, CARDS[:1], CARDS[1:], ())}
    assert len(names) == 4


def test_a_container_finds_each_resource_and_the_script_at_its_place():
    assert settings.mounts("rdma/a", "/host/a", "/host/bin") == (
        FileMount("/host/bin", "/usr/share/kube-rdma/bin"),
        FileMount("/host/a", "/usr/share/kube-rdma/rdma/a"),
    )


A, B = ("rdma/a", "0"), ("rdma/b", "0")
MADE = UsedDevice("mlx5_0", 1, "net1", gid_index=5)

SHARES = st.tuples(st.sampled_from(["rdma/a", "rdma/b"]), st.sampled_from("0123"))
HOLDINGS = st.lists(
    st.builds(
        lambda pod, container, share: Holding("default", pod, container, share[0], (share[1],)),
        st.sampled_from("pq"),
        st.sampled_from("cd"),
        SHARES,
    ),
    max_size=8,
)


@given(held=st.sets(SHARES, min_size=1), holdings=HOLDINGS)
def test_together_are_the_shares_of_the_same_containers(held, holdings):
    """Those asked about always; any other exactly if one container has both."""
    found = settings.together(held, holdings)
    assert held <= found
    containers = {
        (one.pod, one.container)
        for one in holdings
        if {(one.resource, share) for share in one.shares} & held
    }
    theirs = {
        (one.resource, share)
        for one in holdings
        if (one.pod, one.container) in containers
        for share in one.shares
    }
    assert found == held | theirs


def test_devices_of_two_resources_are_told_together():
    one = card(1)
    assert settings.devices_of({A, B}, {A: Edits(used=(MADE,))}, {B: (one,)}) == (
        MADE,
        *settings.known_devices([one]),
    )


def test_a_resource_with_a_network_is_told_by_it_alone():
    """Its container can open no other device of the resource either."""
    second = ("rdma/a", "1")
    cards = {A: (card(1),), second: (card(1), card(2))}
    assert settings.devices_of({A, second}, {A: Edits(used=(MADE,))}, cards) == (MADE,)


def test_a_device_of_many_shares_is_told_once():
    both_cards = card(1), card(2)
    cards = {A: both_cards, ("rdma/a", "1"): both_cards}
    names = [each.name for each in settings.devices_of(cards.keys(), {}, cards)]
    assert names == [one.devices[0].name for one in both_cards]


def test_known_are_ports_with_a_link_of_cards_that_can_be_used():
    one = card(1)
    (device,) = one.devices
    down = replace(device.ports[0], number=2, state=PortState.DOWN)
    third = replace(device.ports[0], number=3, link_layer=LinkLayer.INFINIBAND)
    many = replace(one, devices=(replace(device, ports=(*device.ports, down, third)),))
    ill = replace(card(2), reasons=("its link is down",))
    found = settings.known_devices([many, ill])
    assert [(each.name, each.port, each.infiniband) for each in found] == [
        (device.name, 1, False),
        (device.name, 3, True),
    ]
    assert {each.interface for each in found} == {""}
    assert {each.place.position for each in found} == {one.position}


def test_a_card_without_a_link_is_told_where_no_other_has_one():
    """It comes back some moments later; chaos found a pod that began in between, without files."""
    ill, well = replace(card(2), reasons=("its link is down",)), card(1)
    names = {one: one.devices[0].name for one in (ill, well)}
    told = settings.devices_of({A, B}, {}, {A: (ill,), B: (well,)})
    assert [each.name for each in told] == [names[well]]
    told = settings.devices_of({A}, {}, {A: (ill,)})
    assert [each.name for each in told] == [names[ill]]
    assert told == settings.known_devices([ill]), "what Allocate gives has the same rule"
    assert settings.devices_of({A, B}, {B: Edits(used=(MADE,))}, {A: (ill,)}) == (MADE,)


@pytest.mark.parametrize("held", [frozenset(), frozenset({A})])
def test_without_cards_nothing_is_told(held):
    assert settings.devices_of(held, {}, {}) == ()
