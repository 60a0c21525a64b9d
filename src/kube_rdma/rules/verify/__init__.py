"""The proof of a cluster's RDMA: who measures with whom and when, how, and what the figures say."""
