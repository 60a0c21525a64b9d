"""`kube-rdma config check` of manifests: which objects files hold, and what the rules say."""
