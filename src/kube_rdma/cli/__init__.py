"""The command `kube-rdma`: one file per subcommand, nothing here but words and exit codes.

No other package imports it.
"""
