"""The demo: examples/s2-scc on a lab, from the manifests to RDMA between two pods.

`make demo`, the lab's tests and the bandwidth benchmark all run this one path.
"""
