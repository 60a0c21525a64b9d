"""Plans the way from another device plugin to kube-rdma, and makes a node's part of it.

Only cli imports it.
"""
