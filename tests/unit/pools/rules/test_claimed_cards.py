"""Network cards that came by claims: found by what drivers publish of them, whoever they are."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import Frozen, replace
from kube_rdma.model.claims.devices import (
    DRIVER,
    ClaimedDevice,
    DeviceSlice,
    PublishedCard,
    SliceDevice,
)
from kube_rdma.model.device import PciAddress
from kube_rdma.pools.rules.claimed_cards import claimed_cards, rdma_devices

PCI = "0000:81:00.0"
CARD = PublishedCard("pci-0000-81-00-0", PCI, "mlx5_1", "ens1", capable=True)
DRANET = DeviceSlice("dra.net", "node-1", 2, cards=(CARD,))


class SeenDevice(Frozen):
    name: str
    pci: PciAddress | None = None


def held(name=CARD.name, driver="dra.net", container="c"):
    return ClaimedDevice("team", "train", container, SliceDevice(driver, "node-1", name))


def test_what_a_container_holds_is_joined_with_what_the_driver_published():
    devices = [held("gpu-0", "gpu.nvidia.com"), held(), held(), held(container="d")]
    cards = claimed_cards(devices, [DRANET])
    assert [(one.held.container, one.card, one.driver) for one in cards] == [
        ("c", CARD, "dra.net"),
        ("d", CARD, "dra.net"),
    ]
    assert not any(one.is_own for one in cards)
    own = replace(DRANET, driver=DRIVER)
    assert [one.is_own for one in claimed_cards([held(driver=DRIVER)], [own])] == [True]


def test_a_slice_of_an_older_generation_says_nothing():
    old = replace(DRANET, generation=1, cards=(replace(CARD, name="gone"),))
    assert claimed_cards([held("gone")], [old, DRANET]) == ()
    assert len(claimed_cards([held("gone")], [old])) == 1


def test_the_function_counts_before_the_name():
    moved = SeenDevice("rdma0", PciAddress(PCI))
    other = SeenDevice("mlx5_1", PciAddress("0000:01:00.0"))
    assert rdma_devices(CARD, [other, moved]) == (moved,)
    assert rdma_devices(CARD, [other]) == ()


def test_of_several_devices_on_a_function_the_named_one_is_meant():
    devices = [SeenDevice(name, PciAddress(PCI)) for name in ("mlx5_0", "mlx5_1")]
    assert rdma_devices(CARD, devices) == (devices[1],)
    assert rdma_devices(replace(CARD, rdma=""), devices) == ()


def test_a_soft_device_goes_by_its_name():
    soft = SeenDevice("rxe0")
    card = PublishedCard("rxe0", rdma="rxe0")
    assert rdma_devices(card, [soft, SeenDevice("rxe1")]) == (soft,)
    assert rdma_devices(PublishedCard("net", interface="eth1"), [soft]) == ()


DEVICES = st.lists(
    st.builds(
        SeenDevice,
        st.sampled_from(["mlx5_0", "mlx5_1", "rxe0"]),
        st.sampled_from([None, PciAddress(PCI), PciAddress("0000:01:00.0")]),
    ),
    max_size=4,
    unique_by=lambda one: one.name,
)


@given(DEVICES, st.sampled_from(["", PCI]), st.sampled_from(["", "mlx5_1", "rxe0"]))
def test_a_card_is_at_most_one_device_and_none_of_another_function(devices, pci, name):
    chosen = rdma_devices(PublishedCard("nic", pci, name), devices)
    assert len(chosen) <= 1
    for one in chosen:
        assert one in devices
        assert not pci or one.pci in (None, pci)
        assert pci or one.name == name
