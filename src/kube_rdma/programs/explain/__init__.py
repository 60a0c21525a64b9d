"""`kube-rdma explain`: collects what rules/explain judges of a pod."""
