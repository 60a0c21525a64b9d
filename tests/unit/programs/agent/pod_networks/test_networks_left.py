"""Networks of our types as other tools know them: left to their plugin, with all that they say."""

import json

import pytest

from kube_base.errors import Refused
from kube_rdma.model.pools.pool import Mode

from .network_world import RESOURCE, World, card, share

STATUS = "k8s.v1.cni.cncf.io/network-status"
DNS = {"nameservers": ["10.0.0.2"], "search": ["a.b"]}


def node(folder, shares, resource=None, **fields):
    """A pod that asks for a macvlan, with an address of its own."""
    text = json.dumps({"cniVersion": "1.0.0", "type": "macvlan", **fields})
    found = World(folder, [card(0)], shares, {"default/lan": (resource, text)})
    found.sandbox()
    found.ask("lan")
    return found


async def test_macvlan_on_the_default_route_is_its_plugins(tmp_path):
    """In a pod without a share; where the plugin is not installed, that is said at once."""
    world = node(tmp_path, ())
    with pytest.raises(Refused, match="the node has no CNI plugin macvlan"):
        await world.add(1)
    world.nothing_left(1)


async def test_the_dns_of_an_ipam_is_in_the_status(tmp_path):
    """Of a network that we make."""
    ipam = {"type": "static", "addresses": [{"address": "10.0.0.7/24"}], "dns": DNS}
    world = node(tmp_path, [share(card(0), Mode.SHARED_MULTI)], RESOURCE, ipam=ipam)
    await world.add(1)
    (told,) = world.node.told[STATUS]
    assert (told["ips"], told["dns"]) == (["10.0.0.7"], DNS)
    await world.delete(1)
    world.nothing_left(1)
