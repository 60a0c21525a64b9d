"""A container is told of all that it uses: across resources, by networks where there are some."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.attach.rules.settings import known_devices, together, used_devices
from kube_rdma.model.device import LinkLayer, PortState
from kube_rdma.model.holdings import Holding
from kube_rdma.model.late_binding import Edits, UsedDevice
from tests.kit.pod_networks import card

A, B = ("rdma/a", "0"), ("rdma/b", "0")
MADE = UsedDevice("mlx5_0", 1, "net1", gid_index=5)
OWN, OTHER = UsedDevice("mlx5_0", 1, ""), UsedDevice("mlx5_1", 1, "")

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
    found = together(held, holdings)
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
    edits = {A: Edits(used=(MADE,))}
    assert used_devices({A, B}, edits, {B: (OTHER,)}) == (MADE, OTHER)


def test_a_resource_with_a_network_is_told_by_it_alone():
    """Its container can open no other device of the resource either."""
    second = ("rdma/a", "1")
    edits = {A: Edits(used=(MADE,))}
    assert used_devices({A, second}, edits, {second: (OWN, OTHER)}) == (MADE,)


def test_a_device_of_many_shares_is_told_once():
    second = ("rdma/a", "1")
    assert used_devices({A, second}, {}, {A: (OWN, OTHER), second: (OWN, OTHER)}) == (OWN, OTHER)


def test_known_are_ports_with_a_link_of_cards_that_can_be_used():
    one = card(1)
    (device,) = one.devices
    down = replace(device.ports[0], number=2, state=PortState.DOWN)
    third = replace(device.ports[0], number=3, link_layer=LinkLayer.INFINIBAND)
    many = replace(one, devices=(replace(device, ports=(*device.ports, down, third)),))
    ill = replace(card(2), reasons=("its link is down",))
    found = known_devices([many, ill])
    assert [(each.name, each.port, each.infiniband) for each in found] == [
        (device.name, 1, False),
        (device.name, 3, True),
    ]
    assert {each.interface for each in found} == {""}
    assert {each.place.seat for each in found} == {one.seat}


@pytest.mark.parametrize("held", [frozenset(), frozenset({A})])
def test_without_cards_nothing_is_told(held):
    assert used_devices(held, {}, {}) == ()
