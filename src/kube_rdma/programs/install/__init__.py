"""`kube-rdma render`, the Helm chart, and the end of an installation."""
