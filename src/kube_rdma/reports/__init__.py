"""Reports nodes to the cluster, and the cluster to people: NodeReports, `kube-rdma status`.

What stands above it may import it: migrate, claims, admission, names, discover, resources, doctor,
explain, agent, verify, controller and cli.
"""
