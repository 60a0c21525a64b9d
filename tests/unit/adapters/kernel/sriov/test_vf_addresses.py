"""The addresses that virtual functions have from the beginning: what a card is told of them."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused, Unavailable
from kube_base.frozen import replace
from kube_rdma.adapters.kernel.sriov.functions import made_of, tell
from kube_rdma.model.device import PlannedHostLink, is_usable_guid
from kube_rdma.model.pools import FunctionPlace, FunctionSettings, LinkState, SetFunctions
from tests.unit.adapters.kernel.vf_answers import INDEX, PLACE, Kernel, answer, function

ACT = SetFunctions(PLACE.pci, "ens1f0", 0, 3)
CARD_MAC, OTHER_MAC = "0c:42:a1:00:00:01", "02:00:00:00:00:09"
CARD_GUID = "0c:42:a1:03:00:00:00:01"


def test_functions_get_macs_that_follow_from_that_of_the_card():
    """From the permanent one: somebody may have set another."""
    kernel = Kernel(*[answer(*map(function, range(3)), macs=(OTHER_MAC, CARD_MAC))])
    tell(kernel, ACT, [0, 2])
    made = [made_of(CARD_MAC, number, 6) for number in (0, 2)]
    assert kernel.set == [(INDEX, FunctionSettings(mac=mac)) for mac in made]


def test_functions_of_infiniband_get_guids():
    """From that of the card's port; node and port have the same."""
    mac = f"00:00:11:22:fe:80:00:00:00:00:00:00:{CARD_GUID}"
    kernel = Kernel(answer(*map(function, range(3)), hardware=32, macs=(mac,)))
    tell(kernel, ACT, [1])
    guid = made_of(CARD_GUID, 1, 8)
    assert kernel.set == [
        (INDEX, FunctionSettings(node_guid=guid)),
        (INDEX, FunctionSettings(port_guid=guid)),
    ]


def test_functions_of_infiniband_get_the_link_of_their_card():
    """mlx5 makes them with a link that is down."""
    mac = f"00:00:11:22:fe:80:00:00:00:00:00:00:{CARD_GUID}"
    made = function(0, link=2)  # IFLA_VF_LINK_STATE_DISABLE
    kernel = Kernel(answer(made, hardware=32, macs=(mac,)))
    tell(kernel, ACT, [0])
    assert (INDEX, FunctionSettings(link_state=LinkState.AUTO)) in kernel.set


def test_a_card_is_found_by_its_place_else_by_its_name():
    """One of the same name is another where the kernel says on what it sits."""
    far = FunctionPlace(PlannedHostLink(INDEX, "ens1f0"), "0000:99:00.0", 0)
    kernel = Kernel(answer(function(0), has_parent=False, macs=(CARD_MAC,)))
    tell(kernel, ACT, [0])
    assert len(kernel.set) == 1
    act = replace(ACT, physical=far.pci)
    with pytest.raises(Unavailable, match="ens1f0 has no interface here"):
        tell(Kernel(answer(function(0), macs=(CARD_MAC,))), act, [0])


def test_a_card_that_takes_no_address_says_so():
    """With the function and what it was to get."""
    kernel = Kernel(answer(function(0), macs=(CARD_MAC,)), refuse=errno.EOPNOTSUPP)
    with pytest.raises(Refused, match="ens1f0 takes no MAC"):
        tell(kernel, ACT, [0])


@given(st.sampled_from([6, 8]), st.text("0123456789abcdef:", max_size=23), st.integers(0, 2**16))
def test_made_addresses_are_of_one_interface_and_of_no_vendor(octets, own, number):
    """The two lowest bits of the first octet; each number has its own."""
    found = made_of(own, number, octets)
    assert int(found[:2], 16) & 3 == 2
    assert len(found) == 3 * octets - 1
    assert found == made_of(own.upper(), number, octets) != made_of(own, number + 1, octets)
    assert octets != 8 or is_usable_guid(found)
