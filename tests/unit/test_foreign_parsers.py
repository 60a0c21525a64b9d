"""No reader of others' JSON lets anything out but the product's own errors, whatever it gets."""

import json
import re
from contextlib import suppress
from copy import deepcopy
from time import process_time

import pytest

from kube_base.errors import KubeError
from tests.kit import foreign_parsers
from tests.kit.foreign_files import FILE_PARSERS
from tests.kit.foreign_parsers import broken, text_of
from tests.kit.foreign_texts import TEXT_PARSERS

PARSERS = foreign_parsers.PARSERS | TEXT_PARSERS | FILE_PARSERS

SLOW = {"kubeconfig", "kubeconfig in YAML"}  # what is broken is read as YAML, a second if nested


def survives(name, count, seed):
    document, parse = PARSERS[name]
    for data in broken(document, count, seed):
        try:
            parse(data)
        except KubeError:
            continue
        except Exception as error:
            error.add_note(f"{name}: {data[:500]!r}")
            raise


@pytest.mark.parametrize("name", PARSERS)
def test_each_takes_its_sample(name):
    """Else broken ones would fail at the first field, and show nothing."""
    document, parse = PARSERS[name]
    parse(text_of(document))


@pytest.mark.parametrize("name", PARSERS)
def test_a_slice_of_broken_documents(name):
    survives(name, 20 if name in SLOW else 150, seed=1)


def places(value, path=()):
    """Every text, list and mapping of a document."""
    if isinstance(value, str | dict | list):
        yield path
    parts = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in parts:
        yield from places(value[key], (*path, key))


def numbered(value, number):
    """The same with other numbers in its texts: no two entries of a list are alike."""
    if isinstance(value, dict):
        return {key: numbered(each, number) for key, each in value.items()}
    if isinstance(value, list):
        return [numbered(each, number) for each in value]
    if not isinstance(value, str):
        return value
    address = f"10.0.{number >> 6 & 255}.{number % 64 * 4}"
    text, found = re.subn(r"10(\.[0-9]+){3}(/[0-9]+)?", address, value)
    return text if found else f"{value}{number}"


def grown(document, path, size):
    """The document with about `size` bytes at a place."""
    whole = {"": deepcopy(document)}
    holder, key = whole, ""
    for part in path:
        holder, key = holder[key], part
    value = holder[key]
    if isinstance(value, str):
        holder[key] = (value or "a") * (size // max(1, len(value)))
        return text_of(whole[""])
    entries = list(value.values()) if isinstance(value, dict) else value
    entry = entries[0] if entries else "a"
    more = [numbered(entry, n) for n in range(size // (len(json.dumps(entry)) + 8))]
    holder[key] = (
        value | {f"k{n}": each for n, each in enumerate(more)} if isinstance(value, dict) else more
    )
    return text_of(whole[""])


def cost(parse, data):
    """Seconds of the processor."""
    begin = process_time()
    with suppress(KubeError):
        parse(data)
    return process_time() - begin


def grows_faster(document, parse, path):
    """Whether four times the bytes cost eight times the work, whenever it is tried."""
    small, large = (grown(document, path, size) for size in (LARGE // 4, LARGE))
    return all(
        (of_large := cost(parse, large)) > 0.01 and of_large > 8 * cost(parse, small)
        for _ in range(5)
    )


LARGE = 1 << 15
GROWING = {
    name: (json.loads(text_of(document)), parse)
    for name, (document, parse) in PARSERS.items()
    if not isinstance(document, str) or document.startswith("{")
}


@pytest.mark.parametrize("name", GROWING)
def test_the_work_of_a_reader_grows_as_its_document_does(name):
    """Wherever the document is long: else one object of etcd's size stops whoever watches it."""
    document, parse = GROWING[name]
    assert [path for path in places(document) if grows_faster(document, parse, path)] == []


def test_a_reader_that_compares_each_entry_with_each_is_found():
    def parse(data):
        entries = json.loads(data)["a"]
        return [one for one in entries if any(one == other + "x" for other in entries)]

    assert grows_faster({"a": ["x" * 40]}, parse, ("a",))


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_a_hundred_thousand_broken_documents(name):
    survives(name, 100_000, seed=2)
