"""The fake kernel refuses what no kernel can show."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sysfs.devices import read_survey
from kube_rdma.model.device import GidType, Gpu, LinkLayer, PciAddress
from kube_rdma_lab.native.tree_text import unpack
from kube_rdma_testing.kernel.tree import write_tree

TREES = Path(__file__).parents[4] / "data/trees"


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    root = tmp_path_factory.mktemp("mlx5")
    unpack((TREES / "mlx5-dual-port/tree.txt").read_text(), root)
    return read_survey(root).devices[0]


@pytest.fixture(scope="module")
def rxe(tmp_path_factory):
    root = tmp_path_factory.mktemp("rxe")
    unpack((TREES / "rxe-two/tree.txt").read_text(), root)
    return read_survey(root).devices[0]


def port_of(device, **changes):
    return replace(device, ports=(replace(device.ports[0], **changes),))


def gid_of(device, **changes):
    return port_of(device, gids=(replace(device.ports[0].gids[0], **changes),))


IMPOSSIBLE = {
    "is not a name of a device": lambda d: replace(d, name="a/b"),
    "is not a GUID": lambda d: replace(d, node_guid="1"),
    "knows no node type": lambda d: replace(d, node_type="HCA"),
    "below 0 means none": lambda d: replace(d, numa_node=-1),
    "without a gap": lambda d: port_of(d, number=2),
    "then issm and umad": lambda d: replace(d, char_devices=d.char_devices[::-1]),
    "not the one it is on": lambda d: replace(d, identity="0000:99:00.0"),
    "steps of 0.5": lambda d: port_of(d, rate_gbps=0.3),
    "is not a name of an interface": lambda d: port_of(d, netdev="a" * 16),
    "listed by index": lambda d: port_of(d, gids=d.ports[0].gids[::-1]),
    "no table is that long": lambda d: gid_of(d, index=1024),
    "of a used entry": lambda d: gid_of(d, value=":".join(["0000"] * 8)),
    "knows the type": lambda d: gid_of(d, type=GidType.UNKNOWN),
    "belong to Ethernet": lambda d: port_of(d, link_layer=LinkLayer.INFINIBAND),
    "is not a device number": lambda d: replace(
        d, char_devices=(replace(d.char_devices[0], major=5000),)
    ),
    "is not a node of uverbs": lambda d: replace(
        d, char_devices=(replace(d.char_devices[0], path="/dev/infiniband/umad0"),)
    ),
}


def position_of(device, **changes):
    return replace(device, position=replace(device.position, **changes))


VF = PciAddress("0000:81:00.2")
IMPOSSIBLE |= {
    "but sits on None": lambda d: replace(d, position=None),
    "its function is on another NUMA node": lambda d: position_of(d, numa_node=None),
    "does not lead from a root": lambda d: position_of(d, root="pci"),
    "a virtual function has none of its own": lambda d: position_of(d, physical_function=VF),
    "more virtual functions than it can have": lambda d: position_of(
        d, virtual_functions=(VF,), sriov_total=0
    ),
    "each there once": lambda d: position_of(d, virtual_functions=(VF, VF)),
    "and auxiliary device": lambda d: replace(d, identity="mlx5_core.sf.4"),
    "32 bits of an auxiliary device": lambda d: replace(d, subfunction=88),
    "is not a name of a bond": lambda d: port_of(d, bond=d.ports[0].netdev),
    "this port has none": lambda d: port_of(d, bond="bond0", netdev=None),
    "a LID has 16 bits": lambda d: port_of(d, lid=0),
    "only InfiniBand has LIDs": lambda d: port_of(d, sm_lid=1),
    "a partition key has 16 bits": lambda d: port_of(d, pkey=1 << 16),
    "only InfiniBand has partitions": lambda d: port_of(d, pkey=0xFFFF),
}


@pytest.mark.parametrize("sentence", IMPOSSIBLE)
def test_an_impossible_card_is_refused_with_the_reason(card, tmp_path, sentence):
    with pytest.raises(ValueError, match=sentence):
        write_tree(tmp_path / "fake", [IMPOSSIBLE[sentence](card)])
    assert not (tmp_path / "fake").exists()


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("is not a GPU's", {"pci_class": 0x020000}),
        ("have 16 bits", {"vendor": 1 << 16}),
        ("a GPU is not an RDMA card", {}),
    ],
)
def test_an_impossible_gpu_is_refused_with_the_reason(card, tmp_path, sentence, changes):
    gpu = replace(Gpu(card.position, 0x030200, 0x10DE, 0x2330, None), **changes)
    with pytest.raises(ValueError, match=sentence):
        write_tree(tmp_path / "fake", [card], gpus=[gpu])


def test_functions_that_contradict_each_other_are_refused(card, tmp_path):
    virtual = replace(card.position, pci=VF, path=(*card.position.path[:-1], VF), sriov_total=None)
    virtual = replace(virtual, physical_function=card.pci)
    other = replace(
        card, name="mlx5_9", identity=str(VF), pci=VF, position=virtual, ports=(), char_devices=()
    )
    with pytest.raises(ValueError, match=r"0000:81:00\.2: 0000:81:00\.0 does not list it"):
        write_tree(tmp_path / "fake", [card, other])
    moved = replace(other, position=replace(virtual, root="pci0000:40", physical_function=None))
    with pytest.raises(ValueError, match="is at two places"):
        write_tree(tmp_path / "fake", [card, moved])


IMPOSSIBLE_SOFT = {
    "neither driver nor firmware": lambda d: replace(d, driver="mlx5_core"),
    "has one port": lambda d: replace(d, ports=()),
    "does not follow from its interface": lambda d: replace(d, identity="rxe0@eth9"),
    "are rxe": lambda d: replace(d, node_type="switch"),
    "with the function of its interface": lambda d: replace(d, position=None, numa_node=0),
    "a position comes with an interface": lambda d: replace(
        port_of(d, netdev=None, gids=()), identity="rxe0"
    ),
}


@pytest.mark.parametrize("sentence", IMPOSSIBLE_SOFT)
def test_an_impossible_soft_link_is_refused_with_the_reason(rxe, tmp_path, sentence):
    with pytest.raises(ValueError, match=sentence):
        write_tree(tmp_path / "fake", [IMPOSSIBLE_SOFT[sentence](rxe)])


def test_two_devices_cannot_share_what_is_one_devices_own(card, tmp_path):
    with pytest.raises(ValueError, match="device name mlx5_0 is there 2 times"):
        write_tree(tmp_path / "fake", [card, card])
    other = replace(card, name="mlx5_9")
    with pytest.raises(ValueError, match=r"identity 0000:81:00\.0 is there 2 times"):
        write_tree(tmp_path / "fake", [card, other])


def test_a_soft_link_may_sit_on_the_interface_of_a_card_and_shares_its_position(
    card, rxe, tmp_path
):
    netdev = card.ports[0].netdev
    on_card = replace(
        port_of(rxe, netdev=netdev, gids=()),
        identity=f"rxe0@{netdev}",
        numa_node=1,
        char_devices=(),
        position=card.position,
    )
    write_tree(tmp_path / "fake", [card, on_card])
    assert read_survey(tmp_path / "fake").devices == (card, on_card)
    with pytest.raises(ValueError, match="another NUMA node"):
        write_tree(tmp_path / "no", [card, replace(on_card, numa_node=0)])
    with pytest.raises(ValueError, match="sits on another function"):
        write_tree(tmp_path / "no", [card, replace(on_card, position=rxe.position)])


def test_a_manifest_may_speak_of_one_folder_at_a_time(tmp_path):
    manifest = "[devices/a]\nx: 1\nup -> /bus/b\nsub/\n/class/a -> /devices/a\n[bus]\nb: 2\n"
    unpack(manifest, tmp_path)
    assert (tmp_path / "class/a/x").read_text() == "1\n"
    assert (tmp_path / "devices/a/up").readlink() == Path("../../bus/b")
    assert (tmp_path / "devices/a/up").read_text() == "2\n"
    assert (tmp_path / "devices/a/sub").is_dir()


def test_a_manifest_line_that_says_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="neither file nor link nor directory"):
        unpack("class/infiniband", tmp_path)
