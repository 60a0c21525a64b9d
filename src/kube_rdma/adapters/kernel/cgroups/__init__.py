"""Control groups of the node: where a pod's is, and what the kernel limits in it."""
