"""kube-rdma's own driver of dynamic resource allocation: claims are prepared, kept and attached."""
