"""No document of any dialect ends in anything but pools or a refusal with its place."""

from enum import StrEnum
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kube_base.errors import Refused
from kube_rdma.model.pools import is_extended_resource
from kube_rdma.pools.documents.config import DIALECTS
from tests.unit.lib.text.test_documents import JSON
from tests.unit.pools.documents.test_dialects import WHOLE, read

ODD = [None, True, 7, -1, 10**40, 1.5, "", "x", [], [None], [[]], [{}], {}, {"x": 1}, {"*": 1}]


def places(value, path=()):
    yield path
    inside = {dict: dict.items, list: enumerate}.get(type(value), lambda _: ())
    for key, each in inside(value):
        yield from places(each, (*path, key))


def changed(value, path, to):
    """A copy of `value` with another value at `path`."""
    if not path:
        return to
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], to)
    return copy


def outcome(value):
    try:
        return read(value)
    except Refused as refused:
        return refused


def check(value):
    """Pools or a refusal; anything else fails the test."""
    found = outcome(value)
    if isinstance(found, Refused):
        assert found.where.startswith("f:")
        assert found.remedy
    else:
        assert found.pools
        assert all(is_extended_resource(pool.resource) for pool in found.pools)


@pytest.mark.parametrize("name", WHOLE)
def test_any_odd_value_at_any_place_is_answered(name):
    for path in places(WHOLE[name]):
        for odd in ODD:
            check(changed(WHOLE[name], path, odd))


@pytest.mark.parametrize("name", DIALECTS)
def test_the_whole_documents_say_everything(name):
    """A field that is added to a model must be added above, so that the test there sees it."""
    said = {part for path in places(WHOLE[name]) for part in path}
    assert set(fields(DIALECTS[name].model)) <= said | {"ddpProfiles", "vdpaType"}


def kinds(annotation):
    yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from kinds(inner)


def models(annotation):
    return [k for k in kinds(annotation) if isinstance(k, type) and issubclass(k, BaseModel)]


def fields(model):
    for name, field in model.model_fields.items():
        yield field.alias or name
        for inner in models(field.annotation):
            yield from fields(inner)


TEXTS = "a b rdma x.org rdma/hca 15b3 ens2f0 ens2f0#1-2 0000:81:00.0 0x8001 * ether sf hca sriov"
WORDS = st.sampled_from([*TEXTS.split(), "NodePolicy", "kube-rdma.io/v1alpha1", "pool", "none"])
LEAVES = st.one_of(WORDS, st.lists(WORDS, max_size=3), st.integers(-1, 200_000), st.booleans())


@cache
def nearly(model):
    return st.fixed_dictionaries(
        {},
        optional={
            field.alias or name: values(field.annotation)
            for name, field in model.model_fields.items()
        }
        | {"other": JSON},
    )


def values(annotation):
    for kind in kinds(annotation):
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return st.sampled_from([member.value for member in kind]) | LEAVES
    for model in models(annotation):
        return nearly(model) | st.lists(nearly(model), max_size=2) | LEAVES
    return LEAVES | JSON | st.dictionaries(WORDS, st.dictionaries(WORDS, WORDS | JSON, max_size=2))


@pytest.mark.parametrize("name", DIALECTS)
@given(st.data())
def test_random_documents_are_answered(name, data):
    check(data.draw(nearly(DIALECTS[name].model)))
