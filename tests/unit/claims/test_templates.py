"""Claim templates: what they ask for, and what the first-fit of a scheduler makes of them."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_base.frozen import Frozen, replace
from kube_rdma.claims.templates import (
    MOST_CONSTRAINTS,
    MOST_DEVICES,
    NEWEST,
    ClaimOptions,
    Reach,
    claim_objects,
    is_long_search,
)

HAS_NUMA = '"numaNode" in device.attributes["resource.kubernetes.io"]'
ROOT, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"
ALONE = ClaimOptions(gpus=1, reach=Reach.ANY)
COUNTS = st.none() | st.integers(1, 10)
WISHES = st.builds(
    ClaimOptions,
    cards=COUNTS,
    rails=COUNTS,
    gpus=st.integers(0, 16),
    reach=st.sampled_from((None, *Reach)),
    shared=st.booleans(),
    gbps=st.sampled_from((None, 100)),
    network=st.sampled_from(("", "team/rdma")),
    minor=st.sampled_from((33, 34, 35, 36, NEWEST)),
)


class BoardDevice(Frozen):
    """A device as a slice has it; an attribute that is not published is left out."""

    name: str
    device_class: str
    attributes: tuple[tuple[str, object], ...]

    def get(self, attribute):
        return dict(self.attributes).get(attribute)


def devices_of(wish):
    template, _ = claim_objects(wish)
    return template["spec"]["spec"]["devices"]


def refusals(wish):
    with pytest.raises(Refused) as caught:
        claim_objects(wish)
    return [one.where for one in (caught.value, *caught.value.more)]


def choices(request):
    """The subrequests of a request with their names, or the request itself."""
    if "exactly" in request:
        return [(request["name"], request["exactly"])]
    return [(f"{request['name']}/{one['name']}", one) for one in request["firstAvailable"]]


def allocate(claim, board, chosen=()):
    """What a first-fit takes, depth first: requests, subrequests and devices in their order."""
    if len(chosen) == len(claim["requests"]):
        return chosen
    taken = [device for _, device in chosen]
    for name, fields in choices(claim["requests"][len(chosen)]):
        for device in board:
            further = (*chosen, (name, device))
            if device not in taken and selected(fields, device) and fits(claim, further):
                whole = allocate(claim, board, further)
                if whole:
                    return whole
    return None


def fits(claim, chosen):
    """Whether devices that are compared have one value, and each of them has any."""
    for constraint in claim.get("constraints", ()):
        concerned = {*constraint["requests"]}
        values = [
            device.get(constraint["matchAttribute"])
            for name, device in chosen
            if {name, name.partition("/")[0]} & concerned
        ]
        if None in values or len({*values}) > 1:
            return False
    return True


def selected(fields, device):
    if device.device_class != fields["deviceClassName"]:
        return False
    for selector in fields.get("selectors", ()):
        expression = selector["cel"]["expression"]
        assert expression in (HAS_NUMA, f"!({HAS_NUMA})")
        if (device.get(NUMA) is not None) == expression.startswith("!"):
            return False
    return True


def made(name, device_class, root, numa):
    given_ = ((ROOT, root), (NUMA, numa))
    return BoardDevice(name, device_class, tuple(each for each in given_ if each[1] is not None))


def nearness(one, other):
    """0 at the same root, 1 of the same NUMA node, 2 elsewhere."""
    if one.get(ROOT) == other.get(ROOT):
        return 0
    return 1 if one.get(NUMA) is not None and one.get(NUMA) == other.get(NUMA) else 2


ROOTS = st.sampled_from(("pci0", "pci1", "pci2", "pci3"))
NODES = st.sampled_from((0, 1))
CARDS = st.lists(st.tuples(ROOTS, st.none() | NODES), min_size=1, max_size=4)
GPUS = st.lists(st.tuples(ROOTS, NODES), min_size=1, max_size=4) | st.lists(
    st.tuples(ROOTS, st.none()), min_size=1, max_size=4
)
"""Of one board: all GPUs have a NUMA node, or none has, as in a virtual machine."""


def board_of(gpus, cards):
    return [
        *(made(f"gpu-{n}", "gpu.nvidia.com", *place) for n, place in enumerate(gpus)),
        *(made(f"card-{n}", "rdma", *place) for n, place in enumerate(cards)),
    ]


@given(GPUS, CARDS)
def test_one_gpu_gets_the_nearest_card_that_the_board_has(gpus, cards):
    """Whatever the order of devices, and on boards that publish no NUMA node."""
    board = board_of(gpus, cards)
    (_, card), (_, gpu) = allocate(devices_of(ALONE), board)
    assert nearness(gpu, card) == min(
        nearness(one, other)
        for one, other in product(board, board)
        if (one.device_class, other.device_class) == ("gpu.nvidia.com", "rdma")
    )


@given(GPUS | CARDS, GPUS)
def test_one_gpu_gets_the_nearest_share_that_the_board_has(gpus, shares):
    """A GPU stands before a share of its own, and gets the same place."""
    board = [
        replace(one, device_class="rdma-shared") if one.device_class == "rdma" else one
        for one in board_of(gpus, shares)
    ]
    (first, gpu), (_, share) = allocate(devices_of(replace(ALONE, shared=True)), board)
    assert first.startswith("gpu/")
    assert nearness(gpu, share) == min(
        nearness(one, other)
        for one, other in product(board, board)
        if (one.device_class, other.device_class) == ("gpu.nvidia.com", "rdma-shared")
    )


@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_gpus_stand_before_shares_where_each_has_its_own(gpus, reach):
    """A search that lacks a GPU then ends before it tries all shares."""
    for wish, first in (
        (ClaimOptions(gpus=gpus, reach=reach, shared=True), "gpu"),
        (ClaimOptions(gpus=gpus, reach=reach), "card"),
        (ClaimOptions(gpus=2 * gpus, cards=gpus, reach=reach, shared=True), "card"),
    ):
        names = [one["name"].partition("-")[0] for one in devices_of(wish)["requests"]]
        assert names[0] == first
        assert set(names[:2]) == {"gpu", "card"}


def test_a_long_search_is_known_by_its_number_of_gpus():
    for gpus in (1, 3, 4, 8):
        assert is_long_search(ClaimOptions(gpus=gpus, reach=Reach.ANY)) is (gpus >= 4)
        assert not is_long_search(ClaimOptions(gpus=gpus, reach=Reach.ROOT))
        assert not is_long_search(ClaimOptions(gpus=gpus))


@given(GPUS, CARDS, st.sampled_from((Reach.ROOT, Reach.NUMA_NODE)))
def test_a_card_that_is_farther_than_it_may_be_is_not_taken(gpus, cards, reach):
    chosen = allocate(devices_of(replace(ALONE, reach=reach)), board_of(gpus, cards))
    if chosen:
        (_, card), (_, gpu) = chosen
        assert nearness(gpu, card) <= (0 if reach is Reach.ROOT else 1)


@given(GPUS, st.data())
def test_each_gpu_gets_a_card_at_its_root_where_every_root_has_both(gpus, data):
    """The cards come in any order."""
    cards = data.draw(st.permutations(gpus))
    wish = ClaimOptions(gpus=len(gpus), reach=Reach.ANY)
    chosen = dict(allocate(devices_of(wish), board_of(gpus, cards)))
    by_name = {name.partition("/")[0]: device for name, device in chosen.items()}
    suffixes = [f"-{n}" for n in range(len(gpus))] if len(gpus) > 1 else [""]
    for suffix in suffixes:
        assert nearness(by_name[f"gpu{suffix}"], by_name[f"card{suffix}"]) == 0


@given(WISHES)
def test_whatever_is_wished_for_is_written_whole_or_refused(wish):
    try:
        claim = devices_of(wish)
    except Refused as refused:
        assert all(one.where.startswith("--") for one in (refused, *refused.more))  # noqa: PT017
        return
    names = [one["name"] for one in claim["requests"]]
    assert len({*names}) == len(names)
    counts = {"gpu": 0, "card": 0}
    for request in claim["requests"]:
        kind = request["name"].partition("-")[0]
        counts[kind] += request.get("exactly", {}).get("count", 1)
    cards = wish.rails or wish.cards or (wish.gpus if wish.reach else 1)
    assert counts == {"gpu": wish.gpus, "card": cards}
    assert sum(counts.values()) <= MOST_DEVICES
    every = {name for one in claim["requests"] for name, _ in choices(one)} | {*names}
    constraints = claim.get("constraints", [])
    assert len(constraints) <= MOST_CONSTRAINTS
    for part in (*constraints, *claim.get("config", ())):
        assert {*part["requests"]} <= every


@pytest.mark.parametrize(
    ("wish", "options"),
    [
        (ClaimOptions(minor=33), ["--kubernetes-version"]),
        (ClaimOptions(rails=2, minor=35), ["--rails"]),
        (ClaimOptions(rails=1, minor=35), []),
        (ClaimOptions(shared=True, minor=34), []),
        (ClaimOptions(shared=True, cards=2, minor=35), ["--shared"]),
        (ClaimOptions(shared=True, gbps=100, minor=35), ["--bandwidth"]),
        (ClaimOptions(gbps=100, minor=34), []),
        (ClaimOptions(gpus=2, reach=Reach.ANY, minor=34), []),
        (ClaimOptions(shared=True, cards=2, gbps=100, rails=2), ["--rails"]),
        (ClaimOptions(reach=Reach.ANY), ["--near"]),
        (ClaimOptions(gpus=20, cards=20), ["--gpus"]),
        (ClaimOptions(cards=33), ["--cards"]),
        (ClaimOptions(gpus=1, cards=17, reach=Reach.ANY), ["--near"]),
        (ClaimOptions(gpus=1, cards=17, reach=Reach.ROOT), []),
        (ClaimOptions(gpus=17, cards=1, reach=Reach.ANY), ["--near"]),
        (ClaimOptions(gpus=17, cards=1, reach=Reach.ROOT), []),
    ],
)
def test_what_cannot_be_said_is_refused_by_its_option(wish, options):
    if options:
        assert refusals(wish) == options
    else:
        claim_objects(wish)


def test_cards_are_dealt_out_evenly_to_gpus():
    claim = devices_of(ClaimOptions(gpus=4, cards=2, reach=Reach.ROOT))
    assert [one["requests"] for one in claim["constraints"]] == [
        ["gpu-0", "card-0"],
        ["gpu-2", "card-1"],
        ["gpu-0", "gpu-1"],
        ["gpu-2", "gpu-3"],
    ]
    names = [one["name"] for one in claim["requests"]]
    assert names == ["card-0", "gpu-0", "card-1", "gpu-2", "gpu-1", "gpu-3"]


@given(GPUS, CARDS, st.data())
def test_a_gpu_without_a_card_of_its_own_is_as_near_as_can_be_to_one_that_has(gpus, cards, data):
    """Whatever devices publish: no GPU that is left over is nearer to the one with the card."""
    count = data.draw(st.integers(1, len(gpus)))
    board = board_of(gpus, cards)
    chosen = allocate(devices_of(ClaimOptions(gpus=count, cards=1, reach=Reach.ANY)), board)
    (_, _), (_, paired), *others = chosen
    taken = [device for _, device in chosen]
    left = [one for one in board if one.device_class != "rdma" and one not in taken]
    assert len(others) == count - 1
    for _, gpu in others:
        assert all(nearness(gpu, paired) <= nearness(one, paired) for one in left)


def test_shares_of_one_claim_are_of_different_cards():
    (constraint,) = devices_of(ClaimOptions(shared=True, cards=2))["constraints"]
    assert constraint["distinctAttribute"] == "resource.kubernetes.io/pciBusID"
    (constraint,) = devices_of(ClaimOptions(shared=True, rails=2))["constraints"]
    assert constraint["distinctAttribute"] == "rdma.kube-rdma.io/rail"
