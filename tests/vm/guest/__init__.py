"""Kernel tests: they run in the bare machine, tests/vm/conftest.py shows them outside."""
