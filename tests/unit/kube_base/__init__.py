"""What the client and kube-rdma both stand on."""
