"""Tests of kube_rdma_tools.machines."""
