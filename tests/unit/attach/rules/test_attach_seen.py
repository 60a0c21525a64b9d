"""What became of an attachment: the plan met with a fresh look at pod and devices."""

from ipaddress import ip_address

import pytest

from kube_base.frozen import replace
from kube_rdma.attach.rules.placement import pod_nics
from kube_rdma.attach.rules.plan import plans, soft_name
from kube_rdma.attach.rules.procedure import attached, char_paths, edits, rdma_names
from kube_rdma.model.attach.attachment import NetworkKind, PodView, SeenLink
from kube_rdma.model.device import CharKind, Gid, GidType
from kube_rdma.model.pools import DATA_FILES, Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.pools.rules.allocation import grant
from tests.kit.nodes import CHAR_KINDS, RDMA_CM, device
from tests.kit.pod_networks import SANDBOX, card, network, node, share, wish
from tests.kit.pod_networks import given as leased

LINK_LOCAL = Gid(0, "fe80:0000:0000:0000:0000:00ff:fe00:0010", GidType.ROCE_V2, "ens0f0")


def rooms(*cards, mode=Mode.SHARED_MULTI, kind=NetworkKind.MACVLAN, addresses=("10.0.0.7/24",)):
    """Plans and interfaces of one network on each card."""
    wishes = [wish(n, network(f"n{n}", kind)) for n, _ in enumerate(cards)]
    found = pod_nics(wishes, [share(each, mode=mode) for each in cards], node(*cards))
    given = [
        leased(n + 1, *(one.replace("10.0.0.", f"10.0.{n}.") for one in addresses))
        for n, _ in enumerate(cards)
    ]
    return plans(SANDBOX, found, given, node(*cards)), found


def view(*names):
    """The pod with these interfaces."""
    return PodView(
        tuple(SeenLink(name, 7, 8000 + n, f"06:{n}", up=True) for n, name in enumerate(names))
    )


def listing(name, *gids):
    """A device with this GID table."""
    known = device(0)
    return replace(known, name=name, ports=(replace(known.ports[0], gids=gids),))


def gid(index, value, kind=GidType.ROCE_V2):
    return Gid(index, value, kind, "net1")


def test_the_devices_of_shared_cards_are_their_own():
    planned, placed = rooms(card(0), card(1))
    assert rdma_names(planned, placed) == ("mlx5_0", "mlx5_1")
    assert rdma_names((*planned, *planned), placed) == ("mlx5_0", "mlx5_1")


def test_a_device_that_was_made_for_the_pod_is_meant_and_not_the_nodes():
    """The rxe of the card is on the node's interface."""
    planned, placed = rooms(card(0, soft=True))
    assert rdma_names(planned, placed) == (soft_name("rxe", SANDBOX.container, "net1"),)


def test_an_interface_is_told_as_it_is_in_the_pod():
    """MAC and MTU of the look, names and addresses of the plan, places of the card."""
    planned, placed = rooms(card(0), card(1))
    found = attached(planned, placed, view("eth0", "net1", "net2"), ())
    assert [(one.network, one.interface) for one in found] == [
        ("default/n0", "net1"),
        ("default/n1", "net2"),
    ]
    assert [(one.mac, one.mtu) for one in found] == [("06:1", 8001), ("06:2", 8002)]
    assert [one.addresses for one in found] == [plan.addresses for plan in planned]
    assert [one.pci for one in found] == ["0000:10:00.0", "0000:11:00.0"]
    assert [one.card for one in found] == ["0000:10:00.0", "0000:11:00.0"]
    assert {(one.rdma_device, one.gid, one.gid_index) for one in found} == {(None, None, None)}


V4 = "0000:0000:0000:0000:0000:ffff:0a00:0007"
OTHERS = "0000:0000:0000:0000:0000:ffff:0a00:0008"


@pytest.mark.parametrize(
    ("addresses", "table", "wanted"),
    [
        (["10.0.0.7/24"], [gid(3, V4, GidType.IB_OR_ROCE_V1), gid(4, V4)], 4),
        (["10.0.0.7/24"], [gid(2, OTHERS), gid(3, V4)], 3),
        (["10.0.0.7/24"], [gid(3, V4, GidType.IB_OR_ROCE_V1)], None),
        (["10.0.0.7/24"], [gid(2, OTHERS)], None),
        (["fd00::7/64"], [gid(5, ip_address("fd00::7").exploded)], 5),
        (["10.0.0.7/24", "fd00::7/64"], [gid(1, ip_address("fd00::7").exploded), gid(2, V4)], 2),
        ([], [gid(3, V4)], None),
    ],
)
def test_the_gid_is_the_roce_v2_one_of_the_first_address(addresses, table, wanted):
    """A table has entries of the MAC, of RoCE v1 and of other pods besides."""
    planned, placed = rooms(card(0), addresses=addresses)
    (one,) = attached(planned, placed, view("net1"), [listing("mlx5_0", LINK_LOCAL, *table)])
    assert one.rdma_device == "mlx5_0"
    assert one.gid_index == wanted
    assert (one.gid is None) is (wanted is None)


def test_each_interface_has_the_device_of_its_own_card():
    planned, placed = rooms(card(0), card(1))
    devices = [listing("mlx5_1"), listing("mlx5_7", gid(0, V4)), listing("mlx5_0")]
    found = attached(planned, placed, view("net2", "net1"), devices)
    assert [one.rdma_device for one in found] == ["mlx5_0", "mlx5_1"]


def test_a_virtual_function_names_its_physical_one():
    whole = card(0)
    where = replace(whole.function.position, physical_function="0000:10:00.7")
    part = replace(whole, function=replace(whole.function, position=where))
    planned, placed = rooms(part, mode=Mode.SRIOV, kind=NetworkKind.CARD)
    (one,) = attached(planned, placed, view("net1"), ())
    assert (one.pci, one.physical) == ("0000:10:00.0", "0000:10:00.7")


def test_programs_open_verbs_and_the_connection_manager():
    """What else a device has is left to the mode."""
    verbs = (CharKind.UVERBS, CharKind.RDMA_CM)
    devices = [device(n, kinds=CHAR_KINDS) for n in (1, 0)]
    assert char_paths(devices, RDMA_CM.path, verbs) == (
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs1",
    )
    numbered = ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1")
    assert char_paths(devices, None, verbs) == numbered
    assert char_paths(devices, RDMA_CM.path, (CharKind.UVERBS,)) == numbered


def test_without_a_device_there_is_nothing_to_connect():
    assert (
        char_paths([replace(device(0), char_devices=())], RDMA_CM.path, frozenset(CharKind)) == ()
    )


@pytest.mark.parametrize("files", [DATA_FILES, tuple(CharKind), (CharKind.UVERBS,)])
def test_a_container_that_is_bound_late_opens_what_one_that_is_bound_early_opens(files):
    char_devices = device(0, kinds=CHAR_KINDS).char_devices
    whole = replace(card(0), devices=(replace(card(0).devices[0], char_devices=char_devices),))
    pool = Pool(
        PoolSpec("r/r", Mode.EXCLUSIVE, "test", device_files=files), (), (whole,), RDMA_CM.path
    )
    early = grant(pool, [Share(ShareId("a"), healthy=True, card=whole.id)]).char_paths
    planned, placed = rooms(whole, mode=Mode.EXCLUSIVE, kind=NetworkKind.CARD)
    names = ((one, rdma_names((one,), (nic,))) for one, nic in zip(planned, placed, strict=True))
    shares = tuple(replace(nic.share, device_files=files) for nic in placed)
    (late,) = edits(names, shares, whole.devices, RDMA_CM.path).values()
    assert late.char_paths == early
    assert len(early) == len(files)
