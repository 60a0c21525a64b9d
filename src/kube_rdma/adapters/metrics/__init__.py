"""Prometheus, which asks by HTTP and reads its text format."""
