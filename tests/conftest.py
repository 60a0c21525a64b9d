"""Fixtures for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# No memory of earlier runs: it is of trees and strategies that have changed since, and the workers
# of `make check` would share it. A failure prints how to get it again.
# And no deadline for an example: a busy machine is no defect.
settings.register_profile("kube-rdma", database=None, print_blob=True, deadline=None)
settings.load_profile("kube-rdma")
# For `make check`, which people run all the time; `make test` tries all.
settings.register_profile("quick", settings.get_profile("kube-rdma"), max_examples=25)


@pytest.fixture
def snapshot(request):
    """Compare a text with a file of data/ beside the test; to accept a change, edit the file."""

    def compare(name, text):
        path = Path(request.path).parent / "data" / name
        assert path.exists(), f"{path} is missing; it should hold:\n{text}"
        assert text.rstrip("\n") == path.read_text().rstrip("\n")

    return compare
