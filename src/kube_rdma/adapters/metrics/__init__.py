"""Writes metrics for Prometheus, serves the agent's own on a socket, and reads process figures."""
