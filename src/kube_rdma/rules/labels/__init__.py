"""Labels of the Node object: which exist, what they say now, and which of them are kube-rdma's."""
