"""Shows the node's RDMA devices: tables, JSON, changes, the matrix of devices and GPUs."""
