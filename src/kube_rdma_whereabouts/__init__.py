"""From whereabouts to kube-rdma's own addresses: its pools and reservations become IPPools.

    `kube-rdma ip migrate` ─► take_over: reads objects ─► plan ─► writes IPPools

A package beside kube_rdma, needed only for that migration. Only cli/ip of kube_rdma knows
its names.
"""
