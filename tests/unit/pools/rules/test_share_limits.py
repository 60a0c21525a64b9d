"""What a pod may take of each device, from what its shares may."""

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.model.attach.attachment import Attachment, GrantedShare, Plan, Sandbox
from kube_rdma.model.attach.steps import MakeRdma, MoveRdma
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.late_binding import PodName
from kube_rdma.model.pools import MOST, Bind, DeviceLimits, Mode, Pool, PoolSpec, RdmaLimits
from kube_rdma.pools.rules.allocation import device_limits, differing, limited, used_devices
from tests.unit.agent.conftest import card as device

A, B = "rdma/a", "rdma/b"
LIMITS = {A: RdmaLimits(2, 100)}
NUMBERS = st.none() | st.integers(1, MOST)


def card(number):
    """A card with one RDMA device, rxe<number>."""
    return Card(CardId(f"card{number}"), (device(number),), None)


def share(*cards, resource=A, slot=0):
    """A share that stands for these cards."""
    return GrantedShare("main", resource, f"share-{slot}", cards, Mode.SHARED_MULTI, Bind.PER_CARD)


NAME = device(0).name


def of(*numbers, name=NAME):
    """Limits of a device."""
    return DeviceLimits(name, RdmaLimits(*numbers))


def test_one_share_has_the_limits_of_its_pool():
    assert device_limits([share(card(0))], LIMITS) == (of(2, 100),)


def test_two_shares_of_a_card_have_their_sum():
    assert device_limits([share(card(0)), share(card(0), slot=1)], LIMITS) == (of(4, 200),)


def test_a_claim_that_takes_three_slots_has_the_limits_of_three_shares():
    assert device_limits([replace(share(card(0)), slots=3)], LIMITS) == (of(6, 300),)


def test_shares_of_two_cards_have_their_own_each():
    shares = [share(card(0)), share(card(1), slot=1)]
    assert device_limits(shares, LIMITS) == (of(2, 100), of(2, 100, name=device(1).name))


def test_a_share_of_the_whole_pool_has_its_limits_on_every_card():
    assert device_limits([share(card(0), card(1))], LIMITS) == (
        of(2, 100),
        of(2, 100, name=device(1).name),
    )


def test_a_share_without_limits_frees_the_device_for_the_pod():
    shares = [share(card(0)), share(card(0), resource=B)]
    assert device_limits(shares, LIMITS) == (of(),)


def test_one_kind_of_limit_alone_leaves_the_other_free():
    assert device_limits([share(card(0))], {A: RdmaLimits(objects=5)}) == (of(None, 5),)


def test_a_device_that_was_made_for_the_pod_has_the_limits_of_the_share_that_it_belongs_to():
    plan = Plan("net1", "net", CardId("card0"), (MakeRdma("rxe-pod", "rxe", "net1"),))
    mine, others = replace(plan, held=share(card(0)).held), replace(plan, held=(A, "share-9"))
    used = [(mine, ("rxe-pod",)), (others, ("rxe-other",))]
    assert of(2, 100, name="rxe-pod") in device_limits([share(card(0))], LIMITS, used)
    assert "rxe-other" not in [one.device for one in device_limits([share()], LIMITS, used)]


def test_devices_of_attachments_are_those_that_were_moved_or_made():
    steps = (MoveRdma("mlx5_0", None), MakeRdma("rxe-pod", "rxe", "net1"))
    plan = Plan("net1", "net", None, steps)
    place = Sandbox("c1", PodName("default", "a"), "uid", "/run/netns/a", 7)
    assert used_devices([Attachment(place, (plan,))]) == [(plan, ("mlx5_0", "rxe-pod"))]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_a_sum_is_never_below_a_part_nor_more_than_the_kernel_counts(numbers):
    limits = {f"rdma/{n}": RdmaLimits(*pair) for n, pair in enumerate(numbers)}
    (total,) = device_limits([share(card(0), resource=name) for name in limits], limits)
    for place, whole in enumerate((total.limits.handles, total.limits.objects)):
        parts = [pair[place] for pair in numbers]
        if whole is None:
            assert None in parts or sum(parts) > MOST
        else:
            assert max(parts) <= whole == sum(parts) <= MOST


def test_what_the_kernel_has_already_is_not_written_and_what_is_gone_neither():
    seen = [of(2, 100), of(name="b")]
    assert differing([of(2, 100), of(1, name="b"), of(1, name="gone")], seen) == (of(1, name="b"),)


def test_a_resource_is_limited_where_its_pool_says_so():
    spec = PoolSpec(A, Mode.SHARED_MULTI, "s", limits=LIMITS[A])
    pools = {one.resource: Pool(one, (), ()) for one in (spec, PoolSpec(B, Mode.SHARED_MULTI, "s"))}
    assert limited(pools) == LIMITS
