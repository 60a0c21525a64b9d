"""Exports series to Prometheus: which exist, and how they follow from what was read.

attach and what stands above it may import it.
"""
