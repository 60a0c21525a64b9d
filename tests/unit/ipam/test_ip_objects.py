"""IPBlock and Lease documents: nothing gets lost, and what was edited is named."""

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_base.errors import Refused
from kube_rdma.ipam import objects
from kube_rdma.lib.text.words import bits_of, span, spans_of
from kube_rdma.model.ipam import Bits, Block, BlockKey, Family, Version
from tests.kit.refusals import refusal
from tests.unit.ipam.ip_values import BITS, BLOCKS, LEASES, keys

KEY = BlockKey("default", Family.V4, 0x0A000040)
GOOD = {
    "network": "default",
    "first": "10.0.0.64",
    "edition": 3,
    "holdings": [{"node": "n", "addresses": ["10.0.0.64-10.0.0.70"]}],
    "pins": [{"owner": "a/b/c", "address": "10.0.0.65"}],
}


@given(BLOCKS)
def test_a_block_survives_its_document(block):
    assert objects.decode_block(objects.encode_block(block)) == block


@given(keys(), BITS)
def test_spans_are_the_set(key, bits):
    texts = list(spans_of(key, Bits(bits)))
    assert bits_of(key, map(span, texts)) == bits
    joints = bits & ~(bits << 1)
    assert len(texts) == joints.bit_count()


@given(LEASES)
def test_a_lease_survives_its_document(lease):
    written = msgspec.json.encode(objects.lease_spec(lease))
    spec = objects.decode_lease(written)
    notes = {"others": "stay", **objects.lease_annotations(lease)}
    name = objects.lease_name(lease.node)
    assert objects.lease(name, spec, notes) == lease
    assert objects.lease(name, spec, notes, Version("5")).version == "5"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"first": "10.0.0.65"}, "spec.first: 10.0.0.65 does not begin a block of 64 addresses"),
        ({"network": "A"}, "spec.network"),
        ({"holdings": [{"node": "n", "addresses": ["10.0.1.1"]}]}, "holdings[0].addresses[0]: 10"),
        ({"holdings": [{"node": "n", "addresses": ["fd00::1"]}]}, "outside of the block"),
        ({"holdings": [{"node": "N!"}]}, "spec.holdings[0].node"),
        ({"holdings": "n"}, "spec.holdings"),
        ({"holdings": [7]}, "spec.holdings[0]"),
        ({"pins": [{"owner": "a/b/c", "address": "10.0.0.63"}]}, "spec.pins[0].address"),
        ({"edition": -1}, "spec.edition"),
        ({"network": 7}, "spec.network: Expected `str`, got `int`"),
        (
            {"first": "10.0.0.64-10.0.0.65"},
            'spec.first: "10.0.0.64-10.0.0.65" is not an IP address',
        ),
        ({"pins": [{"owner": "a/b/c", "address": "10.0.0.64/30"}]}, "spec.pins[0].address"),
        (
            {"holdings": [{"node": "n", "addresses": ["10.0.0.70-10.0.0.65"]}]},
            'holdings[0].addresses[0]: "10.0.0.70-10.0.0.65" is not an address',
        ),
        ({"holdings": [{"node": "n", "more": 1}]}, "spec.holdings[0].more: there is no such field"),
        ({"extra": 1}, "spec.extra: there is no such field"),
    ],
)
def test_an_edited_block_is_named_by_field(change, says):
    assert says in str(refusal(objects.decode_block, json.dumps(GOOD | change).encode()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("10.0.0.64"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*GOOD, "node", "addresses", "owner", "x"]), inner)
    ),
    max_leaves=8,
)


@given(JSON, st.sampled_from([*GOOD]))
def test_garbage_is_refused_and_never_a_crash(garbage, field):
    """Any JSON in place of any field, and in place of the whole."""
    for document in (garbage, GOOD | {field: garbage}):
        with suppress(Refused):
            assert isinstance(objects.decode_block(json.dumps(document).encode()), Block)


@given(JSON)
def test_a_garbled_lease_is_refused(garbage):
    with pytest.raises(Refused):
        objects.decode_lease(json.dumps({"leaseDurationSeconds": "x", "y": garbage}).encode())


@pytest.mark.parametrize(
    ("name", "key", "value", "says"),
    [
        ("node-1", "", "", "Lease node-1: it is not a node's lease for IPAM"),
        ("ipam.n", "beat", "-1", 'Lease ipam.n: metadata.annotations.beat: "-1" is not a number'),
        ("ipam.n", "fenced", "yes", "metadata.annotations.fenced"),
        ("ipam.n", "other", "x", "metadata.annotations.other"),
    ],
)
def test_an_edited_lease_is_named(name, key, value, says):
    notes = {"kube-rdma.io/ipam-boot": "b", "kube-rdma.io/ipam-beat": "1"}
    notes |= {f"kube-rdma.io/ipam-{key}": value} if key else {}
    assert says in str(refusal(objects.lease, name, objects.LeaseSpec(600, "j"), notes))


def test_a_block_reads_well():
    """What kubectl shows: addresses, not bits."""
    text = json.loads(objects.encode_block(objects.decode_block(json.dumps(GOOD).encode())))
    assert text == GOOD
    assert KEY.name == "default.10-0-0-64"
