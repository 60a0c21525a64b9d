"""Reads the node's sysfs tree: devices, functions, interfaces and GPUs; records it as a file."""
