"""`kube-rdma doctor`: collects what rules/doctor judges, of a node or of one pod."""
