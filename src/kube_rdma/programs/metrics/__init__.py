"""`kube-rdma top`: scrapes agents, and carries rates to whoever shows them."""
