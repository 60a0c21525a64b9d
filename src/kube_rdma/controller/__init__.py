"""Composes the controller: one copy leads, and a part that fails stops no other.

Only commands import it: `kube-rdma controller`, and those that wait for agents or end them.
"""
