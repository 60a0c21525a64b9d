"""The shares that a pod holds, as its networks see them, also while a resource is not offered."""

import pytest

from kube_base.errors import Unavailable
from kube_rdma.attach.node_view import NodeContext, NodeView, NodeViewDependencies
from kube_rdma.model.device import CharKind
from kube_rdma.model.holdings import Holding
from kube_rdma.model.pools import Grant, Mode, Pool, PoolSpec, Share, ShareId
from kube_rdma.pools.kubelet_view import KubeletView
from kube_rdma.pools.rails import NodeRails
from tests.unit.attach.network_world import card

RESOURCE, OTHER = "rdma/hca", "nvidia.com/gpu"


def holding(resource, *shares):
    return Holding("default", "train-0", "main", resource, shares)


def asking(pools, withdrawn=(), kubelet=None):
    """The neighbours as they are while these pools are offered."""
    return NodeView(
        NodeViewDependencies(
            None, kubelet, NodeContext(pools, withdrawn), None, None, rail=NodeRails().number
        )
    )


def test_right_after_the_start_nothing_is_known():
    """Not that the pod holds none: it is tried again, by whomever it was asked."""
    node = asking(None)
    with pytest.raises(Unavailable, match="the agent has just started"):
        node.granted([holding(RESOURCE, "a-0")])
    with pytest.raises(Unavailable, match="the agent has just started"):
        node.rail("0000:81:00.0")


def test_a_resource_of_ours_that_is_withdrawn_makes_the_pod_wait():
    """Its shares are still ours, whatever the pod's networks are."""
    with pytest.raises(Unavailable, match="rdma/hca is not advertised on this node now"):
        asking({}, (RESOURCE,)).granted([holding(OTHER, "gpu-0"), holding(RESOURCE, "a-0")])


def test_what_other_device_plugins_gave_is_theirs():
    """It is not looked at, known or not."""
    assert asking({}, (RESOURCE,)).granted([holding(OTHER, "gpu-0")]) == ()
    assert asking({}).granted(()) == ()


def test_a_share_that_the_pool_has_no_more_is_not_left_out():
    """The networks behind it in the annotation would get each other's cards."""
    first = card(0)
    spec = PoolSpec(RESOURCE, Mode.SHARED_MULTI, "policy:1", device_files=tuple(CharKind))
    share = Share(ShareId(f"{first.id}-0"), healthy=True, card=first.id)
    node = asking({RESOURCE: Pool(spec, (share,), (first,))})
    (found,) = node.granted([holding(RESOURCE, share.id)])
    assert (found.cards, found.device_files) == ((first,), tuple(CharKind))
    with pytest.raises(Unavailable, match="rdma/hca has no share gone-0 on this node now"):
        node.granted([holding(RESOURCE, "gone-0", share.id)])


async def test_a_share_that_is_bound_early_comes_with_what_allocate_gave():
    """Not with what it would give now; only where another agent gave it, nobody knows better."""
    first, kubelet = card(0), KubeletView(None)
    spec = PoolSpec(RESOURCE, Mode.SRIOV, "policy:1")
    share = Share(ShareId(first.id), healthy=True, card=first.id)
    node = asking({RESOURCE: Pool(spec, (share,), (first,))}, kubelet=kubelet)
    now = tuple(sorted(char.path for char in first.devices[0].char_devices))
    (found,) = node.granted([holding(RESOURCE, share.id)])
    assert (found.early, found.char_paths) == (True, now)
    kubelet.granted(Grant(RESOURCE, (share.id,), ("/dev/infiniband/uverbs7",)))
    (found,) = node.granted([holding(RESOURCE, share.id)])
    assert found.char_paths == ("/dev/infiniband/uverbs7",)


async def test_what_allocate_gave_is_unknown_after_a_restart_of_the_agent_which_is_a_limit():
    """A device that was renumbered meanwhile then goes unseen: decision 0085, Consequences."""
    first = card(0)
    spec = PoolSpec(RESOURCE, Mode.SRIOV, "policy:1")
    share = Share(ShareId(first.id), healthy=True, card=first.id)
    pools = {RESOURCE: Pool(spec, (share,), (first,))}
    before, after = KubeletView(None), KubeletView(None)
    before.granted(Grant(RESOURCE, (share.id,), ("/dev/infiniband/uverbs7",)))
    (known,) = asking(pools, kubelet=before).granted([holding(RESOURCE, share.id)])
    (restarted,) = asking(pools, kubelet=after).granted([holding(RESOURCE, share.id)])
    assert known.char_paths == ("/dev/infiniband/uverbs7",)
    assert restarted.char_paths != known.char_paths
    assert restarted.char_paths == tuple(
        sorted(char.path for char in first.devices[0].char_devices)
    )
