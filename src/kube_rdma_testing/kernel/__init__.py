"""The kernel: made-up sysfs trees, and a network on which Steps run."""
