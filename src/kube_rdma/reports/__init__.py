"""Reports nodes to the cluster, and the cluster to people: NodeReports, `kube-rdma status`.

migrate, claims, admission, resources, doctor, explain, verify, agent, controller and cli may import
it.
"""
