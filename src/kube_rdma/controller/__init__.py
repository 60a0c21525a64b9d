"""Composes the controller: one copy leads, its parts stand behind walls.

Only the command `kube-rdma controller` imports it.
"""
