"""Kernel tests: they run in the bare machine, tests/bare/conftest.py shows them outside."""
