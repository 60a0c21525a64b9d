"""Decides which labels a Node object gets, and which of them are kube-rdma's."""
