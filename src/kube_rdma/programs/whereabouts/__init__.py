"""The way from whereabouts to kube-rdma's own IPAM: a plan, and its execution."""
