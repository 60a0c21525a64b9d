"""No reader of others' JSON lets anything out but the product's own errors, whatever it gets."""

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


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_a_hundred_thousand_broken_documents(name):
    survives(name, 100_000, seed=2)
