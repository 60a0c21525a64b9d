"""What the cluster is told of its nodes: `kube-rdma status`, the status of each NodePolicy."""
