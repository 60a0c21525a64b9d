"""Writes metrics for Prometheus, serves an agent's on a socket, and reads process figures."""
