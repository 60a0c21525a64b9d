"""The API server of tests/kit/api_server.py, for the tests here."""

from tests.kit.api_server import brisk, clients, server

__all__ = ["brisk", "clients", "server"]
