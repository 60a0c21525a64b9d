"""The API server of tests/kit/api_server.py, and a client of it, for the tests here."""

import pytest

from kube_client.objects import Cluster
from tests.kit.api_server import QUICK, server

__all__ = ["server"]


@pytest.fixture
def line(server):
    return server.line()


@pytest.fixture
def cluster(line):
    return Cluster(line, QUICK)
