"""What a container gets for its shares, and when it gets nothing."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_rdma.model.device import Device
from kube_rdma.model.errors import Refused
from kube_rdma.model.pool import Mode, Pool, PoolSpec, Share
from kube_rdma.model.survey import Verdict
from kube_rdma.rules.allocation import allocate

PATHS = ("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")


def pool(count=1000, healthy=True, unusable=()):
    shares = tuple(Share(f"hca-{n}", healthy) for n in range(count))
    return Pool(PoolSpec(Mode.HCA, "c:1:1"), "rdma/hca", shares, ("a",), PATHS, unusable)


def ill(name, *reasons):
    return Verdict(Device(name, name, None, "CA", None, None, None, None, (), ()), reasons)


IDS = st.one_of(st.integers(0, 1200).map(lambda n: f"hca-{n}"), st.text(max_size=8))


@given(st.lists(IDS, max_size=6), st.sampled_from([0, 1, 1000]), st.booleans())
@settings(deadline=None)
def test_a_grant_is_exactly_what_was_asked_for(wanted, count, healthy):
    """Every share that the pool has and that is healthy, or a refusal that is no other error."""
    offered = pool(count, healthy)
    valid = wanted and healthy and {s.id for s in offered.shares} >= set(wanted)
    if not valid:
        with pytest.raises(Refused) as caught:
            allocate(offered, wanted)
        assert caught.value.remedy
        assert str(caught.value).startswith("rdma/hca: ")
        return
    grant = allocate(offered, wanted)
    assert set(grant.shares) == set(wanted)
    assert len(grant.shares) == len(set(wanted))
    assert (grant.resource, grant.char_paths) == ("rdma/hca", PATHS)
    assert allocate(offered, wanted) == grant, "asking again is legal and gives the same"


def test_unknown_shares_are_named():
    with pytest.raises(Refused) as caught:
        allocate(pool(3), ["hca-1", "x-7", "x-8", "x-9", "x-10", "x-11"])
    assert str(caught.value) == (
        "rdma/hca: none of its 3 shares is named x-7, x-8, x-9 and 2 more. "
        "Create the pod again, the kubelet then picks present shares."
    )


def test_one_unhealthy_share_is_enough_to_refuse():
    offered = replace(pool(0), shares=(Share("a", True), Share("b", False)))
    assert allocate(offered, ["a"]).shares == ("a",)
    with pytest.raises(Refused):
        allocate(offered, ["a", "b"])


def test_an_unhealthy_pool_says_why():
    """The reasons of the cards reach the pod's event."""
    with pytest.raises(Refused) as caught:
        allocate(pool(healthy=False, unusable=(ill("mlx5_0", "cable", "fan"),)), ["hca-0"])
    assert str(caught.value) == (
        "rdma/hca: none of its cards can be used: mlx5_0 (cable, fan). "
        "Repair a card, then create the pod again."
    )
