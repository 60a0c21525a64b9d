"""The command `kube-rdma`: a module for each subcommand, and what they share.

Of kube_rdma only install imports it, for the definitions.
"""
