"""Claims: what those of other drivers tell of this node, and what those of kube-rdma get here."""
