"""Proves a cluster's RDMA: perftest between pods, pair by pair, and whose fault a slow one is.

controller and cli may import it.
"""
