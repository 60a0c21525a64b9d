"""The ground of kube_client and kube_rdma: errors, frozen values, JSON of others, files, waits.

Nothing here knows Kubernetes or RDMA. All but backoff, notices and os_files is pure: no clock,
disk, socket or log.
"""
