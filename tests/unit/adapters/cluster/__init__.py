"""What kube-rdma reads and writes at the API server."""
