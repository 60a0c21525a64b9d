"""The API server of tests/kit/api_server.py, and a client of it, for the tests here."""

from tests.unit.kube_client.conftest import cluster, line, server

__all__ = ["cluster", "line", "server"]
