"""Reads and sets what the kernel shows: sysfs, /proc, cgroups, netlink, SR-IOV, namespaces."""
