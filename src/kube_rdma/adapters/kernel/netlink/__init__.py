"""Netlink: routing, RDMA and uevents, each message encoded and decoded here."""
