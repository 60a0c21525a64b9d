"""Why RDMA does not work: an Observation in, Findings out, root causes first."""
