"""What is said to bad input."""

import pytest

from kube_base.errors import Refused
from tests.kit.golden import assert_golden


def refusal(call, *args, **options):
    """Return the error with which a call refuses."""
    with pytest.raises(Refused) as caught:
        call(*args, **options)
    return caught.value


def assert_written_down(golden, said_to, names):
    """Assert that a file has what is said to each."""
    assert_golden(golden, "\n".join(f"# {name}\n{said_to(name)}\n" for name in names))
