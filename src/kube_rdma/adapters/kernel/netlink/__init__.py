"""Encodes and decodes netlink: routing, RDMA, Data Center Bridging and uevents."""
