"""A pool as the node's cards make it: 1000 shares, every card in each of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube_rdma.model.device import CharDevice, CharKind, Device
from kube_rdma.model.pool import Mode, PoolSpec
from kube_rdma.model.survey import NamespaceMode, Survey, Verdict
from kube_rdma.rules.pools import resolve

SPEC = PoolSpec(Mode.HCA, source="config.json:1:9: mode")
RDMA_CM = CharDevice(CharKind.RDMA_CM, "/dev/infiniband/rdma_cm", 10, 58)
DOORS = [CharKind.UVERBS, CharKind.UMAD, CharKind.ISSM]


def card(number, kinds=(CharKind.UVERBS,)):
    doors = tuple(CharDevice(k, f"/dev/infiniband/{k}{number}", 231, number) for k in kinds)
    name = f"mlx5_{number}"
    return Device(name, f"0000:{number:02x}:00.0", None, "CA", None, None, None, None, (), doors)


def node(*verdicts, rdma_cm=RDMA_CM):
    devices = tuple(verdict.device for verdict in verdicts)
    return verdicts, Survey(devices, rdma_cm, NamespaceMode.SHARED)


def nodes():
    """Up to 12 cards, each with some of the doors, usable or not; rdma_cm or none."""
    kinds = st.lists(st.sampled_from(DOORS), unique=True)
    cards = st.lists(st.tuples(kinds, st.sampled_from([(), ("no port is ACTIVE",)])), max_size=12)
    return st.builds(
        lambda found, cm: node(
            *(Verdict(card(n, doors), reasons) for n, (doors, reasons) in enumerate(found)),
            rdma_cm=cm,
        ),
        cards,
        st.sampled_from([RDMA_CM, None]),
    )


@given(nodes())
@settings(deadline=None)
def test_a_pool_holds_for_any_node(found):
    """What is true of mode hca on every node there can be."""
    verdicts, survey = found
    pool = resolve(SPEC, verdicts, survey)
    usable = any(v.usable for v in verdicts)
    assert len({share.id for share in pool.shares}) == (1000 if verdicts else 0)
    assert {share.healthy for share in pool.shares} <= {usable}
    assert pool.devices == tuple(d.name for d in survey.devices)
    assert list(pool.char_paths) == sorted(set(pool.char_paths))
    doors = {c.path for d in survey.devices for c in d.char_devices}
    if survey.rdma_cm and verdicts:
        doors.add(survey.rdma_cm.path)
    assert set(pool.char_paths) == doors
    assert all(not v.usable for v in pool.unusable)
    assert pool == resolve(SPEC, verdicts, survey)


def test_two_cards_with_all_doors():
    """The example of the SCC document: one share opens both cards."""
    verdicts, survey = node(Verdict(card(0, DOORS), ()), Verdict(card(1, DOORS), ()))
    pool = resolve(SPEC, verdicts, survey)
    assert pool.resource == "rdma/hca"
    assert len(pool.shares) == 1000
    assert pool.char_paths == (
        "/dev/infiniband/issm0",
        "/dev/infiniband/issm1",
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/umad0",
        "/dev/infiniband/umad1",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs1",
    )


@pytest.mark.parametrize(("reasons", "healthy"), [((), True), (("no port is ACTIVE",), False)])
def test_one_usable_card_keeps_the_shares_healthy(reasons, healthy):
    """The card that cannot be used stays in the container: its port may come back."""
    down = Verdict(card(0), ("no port is ACTIVE",))
    pool = resolve(SPEC, *node(down, Verdict(card(1), reasons)))
    assert all(share.healthy is healthy for share in pool.shares)
    assert down in pool.unusable
    assert "/dev/infiniband/uverbs0" in pool.char_paths


def test_a_node_without_cards_offers_nothing():
    """As with v0.1.0 the count drops to 0; rdma_cm alone is of no use."""
    pool = resolve(SPEC, *node())
    assert pool.shares == ()
    assert pool.char_paths == ()
