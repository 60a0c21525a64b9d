"""What Prometheus is given, and what moves over RDMA devices between two scrapes."""
