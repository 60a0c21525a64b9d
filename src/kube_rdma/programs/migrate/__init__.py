"""`kube-rdma migrate` and `ip migrate`: reads what another plugin left, and takes it over."""
