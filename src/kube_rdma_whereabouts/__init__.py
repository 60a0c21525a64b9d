"""From whereabouts to kube-rdma's own addresses: its pools and reservations become IPPools.

    `kube-rdma ip migrate` ─► take_over: reads objects ─► plan ─► writes IPPools

A package beside kube_rdma, needed once in a cluster's life. Only cli/ip of kube_rdma knows its
names.
"""
