"""Asking whether somebody has an address, on a link whose network has neighbours."""

from __future__ import annotations

import pytest

from kube_base.errors import Refused, Unavailable
from kube_rdma.model.attach.steps import AddAddress, Announce, Probe, SetLink

from .steps_contract import V4, V6

LENGTHS = {V4: 24, V6: 64}


class Probed:
    """`world.near` brings net1 in, `world.neighbour(address)` gives the address to somebody on the

    same network and tells his MAC.
    """

    @pytest.mark.parametrize("address", LENGTHS, ids=str)
    def test_an_address_that_somebody_has_is_refused_with_his_mac(self, world, address):
        with world.open() as pod:
            for step in (world.near, SetLink("net1")):
                pod.run(step)
            mac = world.neighbour(address)
            with pytest.raises(Refused, match=f"{address} is in use already: {mac} answers"):
                pod.run(Probe("net1", address))

    @pytest.mark.parametrize("address", LENGTHS, ids=str)
    def test_a_free_address_is_not_refused_nor_is_the_pod_s_own(self, world, address):
        other = next(one for one in LENGTHS if one != address)
        with world.open() as pod:
            for step in (world.near, SetLink("net1")):
                pod.run(step)
            world.neighbour(other)
            for step in (
                Probe("net1", address),
                AddAddress("net1", address, LENGTHS[address]),
                Announce("net1", address),
                Probe("net1", address),
            ):
                pod.run(step)

    def test_a_link_that_is_down_or_not_there_cannot_ask(self, world):
        with world.open(patience=0.05) as pod:
            with pytest.raises(Unavailable, match="no interface net1"):
                pod.run(Probe("net1", V4))
            pod.run(world.near)
            with pytest.raises(Unavailable, match="net1 has no carrier"):
                pod.run(Probe("net1", V4))
