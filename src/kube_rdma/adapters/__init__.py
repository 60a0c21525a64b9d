"""Neighbours of kube-rdma: bytes of each to model values and back. Adapters decide nothing."""
