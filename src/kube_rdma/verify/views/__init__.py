"""Shows what `kube-rdma verify` measured: tables, verdicts, a map of all pairs."""
