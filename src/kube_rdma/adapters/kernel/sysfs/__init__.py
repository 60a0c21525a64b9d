"""Reads the node's sysfs tree: devices, functions, interfaces and GPUs; copies it to a folder."""
