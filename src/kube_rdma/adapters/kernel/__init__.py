"""The kernel: sysfs, RDMA netlink, events."""
