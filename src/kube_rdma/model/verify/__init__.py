"""The proof that pods reach each other by RDMA: what is asked for, run and measured."""
