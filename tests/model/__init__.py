"""The model test of cluster-wide IPAM: a small world where everything goes wrong."""
