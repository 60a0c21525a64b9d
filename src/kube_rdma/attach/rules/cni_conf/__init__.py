"""Decides where kube-rdma stands in the node's CNI configuration, and who calls it."""
