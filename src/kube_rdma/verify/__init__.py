"""Measures RDMA by perftest between pods, pair by pair, and names what is slow.

controller and cli may import it.
"""
