"""What kube-rdma reads and writes at the API server, kind by kind, through kube_client.

What leaves the package is a model value, or a frozen value of `kube_client.kinds`. Without access
to the API server nobody has to import it.
"""
