"""A class that a journal records is in the table of what stands on disk, field for field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import signature

import pytest

from kube_base.frozen import Frozen
from kube_rdma.adapters.journal.codec import FORMS, RecordForm, form
from kube_rdma.model.device import PlannedHostLink
from tests.kit.recorded import records


def faults(classes: Iterable[type], forms: Iterable[RecordForm]) -> Iterator[str]:
    """One sentence for each thing that the disk would lose, or have twice."""
    forms = tuple(forms)
    table = {entry.of: entry for entry in forms}
    tags = [entry.tag for entry in forms]
    for tag in sorted({tag for tag in tags if tags.count(tag) > 1}):
        yield f"{tag} is the tag of two classes"
    for of in classes:
        if of not in table:
            yield f"{of.__name__} is recorded and has no form"
    for entry in forms:
        names = list(signature(entry.of).parameters)
        named = list(entry.fields.values())
        for name in dict.fromkeys([*names, *named]):
            if (names.count(name), named.count(name)) != (1, 1):
                yield f"{entry.of.__name__}.{name} is not one field with one key"
        for key in set(entry.identity) - entry.fields.keys():
            yield f"{entry.of.__name__} is told apart by {key}, which is no key of it"


def test_the_table_is_whole() -> None:
    """Every recorded class with every field, and nothing that is not recorded."""
    assert not list(faults(records(), FORMS))
    assert {entry.of for entry in FORMS} == set(records())


class Planted(Frozen):
    """A recorded class with a field of last week, `colour`, and one of today."""

    colour: str
    size: int = 0


@pytest.mark.parametrize(
    ("forms", "sentence"),
    [
        ((), "Planted is recorded and has no form"),
        ((form(Planted, "Planted", "colour"),), "Planted.size is not one field with one key"),
        (
            (form(Planted, "Planted", "colour size shape"),),
            "Planted.shape is not one field with one key",
        ),
        (
            (form(Planted, "Planted", "colour hue=colour size"),),
            "Planted.colour is not one field with one key",
        ),
        (
            (form(Planted, "Planted", "colour size", identity="name"),),
            "Planted is told apart by name, which is no key of it",
        ),
        (
            (form(Planted, "Host", "colour size"), form(PlannedHostLink, "Host", "index name")),
            "Host is the tag of two classes",
        ),
    ],
)
def test_a_planted_fault_is_found(forms: tuple[RecordForm, ...], sentence: str) -> None:
    """Each kind of fault is named."""
    assert list(faults((Planted,), forms)) == [sentence]
