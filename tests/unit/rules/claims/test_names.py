"""What devices of the driver are called: DNS labels that last."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kube_rdma.model.card import Card, CardId
from kube_rdma.model.pools.pool import Mode, Pool, PoolSpec
from kube_rdma.rules.claims.names import device_name
from tests.kit.nodes import hard_card

POOL = Pool(PoolSpec("rdma/hca", Mode.HCA, "config.json:1"), (), ())


def test_a_card_is_called_by_its_address_and_a_pool_by_its_resource():
    assert device_name(POOL, hard_card(0x1A)) == "0000-1a-00-0"
    assert device_name(POOL, None) == "rdma-hca"
    soft = Card(CardId("rxe0@eth1.100"), (), None)
    assert device_name(POOL, soft) == "rxe0-eth1-100"


@given(st.from_regex(r"[a-z0-9][A-Za-z0-9_.:@-]{0,90}", fullmatch=True))
def test_every_name_is_a_dns_label(text):
    name = device_name(POOL, Card(CardId(text), (), None))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)


def test_long_names_with_one_beginning_stay_apart():
    names = {device_name(POOL, Card(CardId("x" * 70 + end), (), None)) for end in "ab"}
    assert len(names) == 2
