"""The kernel: sysfs, /proc and cgroups, netlink, SR-IOV, and the network namespaces of pods."""
