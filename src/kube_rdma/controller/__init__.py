"""Composes the controller: one copy leads, its parts stand behind walls.

Only commands import it: `kube-rdma controller`, and those that wait for agents or end them.
"""
