"""The decoder of others' JSON: what it takes, and that everything else is Undecodable."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct

from kube_base.errors import Refused
from kube_base.foreign_json import MAX_DEPTH, Undecodable, decoded, pruned


class Typed(Struct):
    count: int = 0
    rest: Raw = Raw(b"{}")


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (nested(1200), "nested deeper than 64 levels"),
        (nested(MAX_DEPTH + 2), "nested deeper than 64 levels"),
        (b'{"a":' * 5000, "nested deeper than 64 levels"),
        (b'"\xff"', "not UTF-8"),
        ("\ud800", "not UTF-8"),
        (b'"\\ud800"', "truncated"),
        (b"9" * 30, "more than 64 bits"),
        (b"9" * 5000, "out of range"),
        (b"1e999", "out of range"),
        (b"NaN", "malformed"),
        (b"", "truncated"),
    ],
)
def test_what_cannot_be_read_is_undecodable(data, why):
    """It is Refused, so whoever knows the product's errors knows it, and a ValueError."""
    with pytest.raises(Undecodable, match=why) as refused:
        decoded(data)
    assert isinstance(refused.value, Refused)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    "data", [b'{"x":' + nested(3000) + b"}", b'{"rest":' + nested(3000) + b"}", b'{"count":1e400}']
)
def test_types_do_not_change_that(data):
    """Also not for fields that the type leaves out, or leaves unread."""
    with pytest.raises(Undecodable):
        decoded(data, Typed)


def test_a_document_has_an_end():
    with pytest.raises(Undecodable, match="larger than 1 MiB"):
        decoded(b" " * (1 << 20) + b"1", object, most=1 << 20)


def test_the_deepest_that_is_read():
    assert decoded(nested(MAX_DEPTH))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES, st.integers(300, 5000))
def test_pruning_leaves_all_but_what_is_too_deep(value, levels):
    """Neighbours of a deep value stay as they are, and the deep one is still refused."""
    beside = json.dumps(value).encode()
    data = b'{"before":%s,"deep":%s,"after":%s}' % (beside, nested(levels), beside)
    left = json.loads(pruned(data))
    assert (left["before"], left["after"]) == (value, value)
    with pytest.raises(Undecodable, match="nested"):
        decoded(pruned(data))
    assert json.loads(pruned(beside)) == value
