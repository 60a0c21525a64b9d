"""A card whose GID table is full: the pod is refused at once, before anything is done for it."""

import pytest

from kube_base.errors import Refused
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.attach.rules.plan import gids_wanted
from kube_rdma.model.attach.attachment import GidTable, NetworkKind
from kube_rdma.model.pools import Mode
from tests.kit import pod_networks as pods
from tests.unit.attach.network_world import World, card, config, share


@pytest.fixture
def world(tmp_path):
    """A pod with a share of each of two cards, and a network on either."""
    shares = [share(card(number), Mode.SHARED_MULTI) for number in range(2)]
    networks = {"default/rdma": config("macvlan")}
    found = World(tmp_path, [one.cards[0] for one in shares], shares, networks)
    found.sandbox()
    found.ask("rdma,rdma")
    return found


async def test_a_full_table_is_refused_before_anything_is_done(world):
    """It says N of M; with room the same pod starts."""
    world.node.gids["mlx5_1"] = GidTable("mlx5_1", 256, 255)
    with pytest.raises(Refused, match="255 of 256 entries are in use, and 1 addresses need 2"):
        await world.add(1)
    assert not [link for link in world.kernel.links if link.name.startswith("net")]
    world.nothing_left(1)
    world.node.gids.clear()
    await world.add(1)
    await world.check(1)


def plans(mode, of, **facts):
    """Of a network with an address of each family."""
    granted = pods.share(of, mode=mode)
    leased = [pods.given(1, "10.0.0.7/24", "fd00::7/64")]
    return pods.planned([pods.wish(of=pods.network(**facts))], [granted], pods.node(of), leased)


def test_the_tables_of_cards_count_that_pods_share():
    """A card that moves has its table for itself, so has a device that is made for the pod."""
    assert gids_wanted(plans(Mode.SHARED_MULTI, pods.card(1))) == {"mlx5_1": 2}
    assert gids_wanted(plans(Mode.EXCLUSIVE, pods.card(1))) == {}
    assert gids_wanted(plans(Mode.SHARED_MULTI, pods.card(1, soft=True))) == {}
    wide = pods.card(1, link_type="infiniband")
    assert gids_wanted(plans(Mode.SHARED_MULTI, wide, kind=NetworkKind.IPOIB)) == {}


async def test_the_kernel_is_asked_about_the_plans_devices_only():
    """And not at all where there are none."""
    asked = []

    def tables(wanted):
        asked.append(wanted)
        return (GidTable("mlx5_1", 8, 5),)

    node = NodeView(NodeViewDependencies(None, None, NodeContext({}), None, None, gids=tables))
    await node.refuse_full(plans(Mode.EXCLUSIVE, pods.card(1)))
    assert not asked
    with pytest.raises(Refused, match="5 of 8 entries are in use, and 2 addresses need 4"):
        await node.refuse_full(plans(Mode.SHARED_MULTI, pods.card(1)))
    assert asked == [{"mlx5_1": 2}]
