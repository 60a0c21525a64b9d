"""The kernel: sysfs, RDMA netlink, events. Each reader ships its fake."""
