"""Decodes values of an installation, for `kube-rdma render` and the Helm chart."""
