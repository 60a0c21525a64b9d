"""From another device plugin to kube-rdma: where a cluster stands, and the commands of the way."""
