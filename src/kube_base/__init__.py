"""The ground of kube_client and kube_rdma: errors, frozen values, JSON of others, waits.

Nothing here knows Kubernetes or RDMA. All but backoff is pure: no clock, disk, socket or log.
"""
