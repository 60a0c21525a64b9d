"""What holds of kube-rdma; CONTRIBUTING.md says where a test goes."""
