"""Fixtures for all tests."""

from pathlib import Path

import pytest


@pytest.fixture
def snapshot(request):
    """Compare a text with a file of data/ beside the test; to accept a change, edit the file."""

    def compare(name, text):
        path = Path(request.path).parent / "data" / name
        assert path.exists(), f"{path} is missing; it should hold:\n{text}"
        assert text.rstrip("\n") == path.read_text().rstrip("\n")

    return compare
