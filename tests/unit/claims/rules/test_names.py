"""Names of devices and slices: valid, stable, and back to what they stand for."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kube_base.frozen import replace
from kube_rdma.claims.rules.shape import device_name, slice_name, slot_name
from kube_rdma.model.card import Card, CardId
from kube_rdma.model.claims.devices import DRIVER
from kube_rdma.model.pools import Mode
from tests.kit.claims import pool
from tests.kit.nodes import hard_card

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
CARD = hard_card(0x1A)


def named(text):
    return device_name(pool(), Card(CardId(text), (), None))


def test_a_card_is_called_by_its_address():
    assert device_name(pool(), CARD) == "0000-1a-00-0"


def test_a_soft_device_is_called_by_its_name():
    assert named("rxe_0@eth0.100") == "rxe-0-eth0-100"


def test_a_pool_is_called_by_its_resource():
    assert device_name(pool(mode=Mode.HCA), None) == "rdma-hca"
    vke = replace(pool(mode=Mode.HCA).spec, resource="vke.volcengine.com/rdma")
    assert device_name(replace(pool(), spec=vke), None) == "vke-volcengine-com-rdma"


@given(st.text(min_size=1, max_size=300))
def test_every_name_is_a_dns_label_and_always_the_same(text):
    name = named(text)
    assert LABEL.fullmatch(name)
    assert LABEL.fullmatch(slot_name(name, 999))
    assert name == named(text)


def test_long_names_that_begin_alike_differ():
    assert named("x" * 100 + "a") != named("x" * 100 + "b")
    assert named("x" * 63) == "x" * 63


def test_slices_sort_by_number():
    names = [slice_name(number, "node-1") for number in range(120)]
    assert names == sorted(names)
    assert names[0] == f"000-{DRIVER}-node-1"
    assert len(slice_name(0, "n" * 253)) == 253
