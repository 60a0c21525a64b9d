"""The admission webhook with its certificate, and `kube-rdma config check` of manifests."""
