"""Plans the way from another device plugin to kube-rdma, and a node's way to claims.

Only cli imports it.
"""
