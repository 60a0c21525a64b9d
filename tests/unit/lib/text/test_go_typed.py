"""What encoding/json overlooks in a document, a GoTyped model overlooks too, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from kube_base.errors import Refused
from kube_rdma.lib.text.document import of_value
from kube_rdma.lib.text.faults import validate
from kube_rdma.lib.text.typed import GoTyped, Many
from kube_rdma.lib.text.words import IpAddress, Label


class Inner(GoTyped):
    """A part of the document."""

    is_rdma: bool = False


class Outer(GoTyped):
    """One field of each sort."""

    name: str = Field("", examples=["a"])
    network: Label | None = None
    gateway: IpAddress | None = None
    vlan: int = 0
    trust: bool = False
    ips: Many[IpAddress] = ()
    part: Inner = Inner.model_construct()


FIELDS = list(Outer.model_fields)
SAID = {
    "name": "a",
    "network": "blue",
    "gateway": "10.0.0.1",
    "vlan": 5,
    "trust": True,
    "ips": ["10.0.0.2"],
    "part": {"isRdma": True},
}
LETTERS = st.sampled_from([str.lower, str.upper, str.title, str])


def read(value):
    return validate(Outer, of_value(value, "conf"))


@given(st.sets(st.sampled_from(FIELDS)), st.sets(st.text(min_size=1, max_size=9)), LETTERS)
def test_null_says_nothing_and_letters_have_any_size(fields, others, spelled):
    """As if the keys that hold null were not there, whether anybody knows them or not."""
    nulls = {key: None for key in (*FIELDS, *others) if key not in fields}
    written = {spelled(key): SAID[key] for key in fields}
    assert read({**nulls, **written}) == read({key: SAID[key] for key in fields})


@pytest.mark.parametrize("field", ["name", "network", "gateway"])
def test_an_empty_text_leaves_a_text_as_it_is(field):
    assert read({field: ""}) == read({})


@pytest.mark.parametrize("field", ["vlan", "trust", "ips", "part"])
def test_an_empty_text_is_no_number_switch_list_or_object(field):
    """There it is a fault in Go too, and a VLAN that is overlooked would be one in silence."""
    with pytest.raises(Refused):
        read({field: ""})


def test_a_key_in_two_sizes_of_letters_is_refused():
    with pytest.raises(Refused, match='Did you mean "vlan"'):
        read({"vlan": 5, "VLAN": 6})
