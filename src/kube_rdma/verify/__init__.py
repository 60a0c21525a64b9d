"""Measures RDMA by perftest between pods, pair by pair, and names what is slow.

queue, preflight, controller and cli may import it.
"""
