"""Why RDMA does not work: an Observation in, Ailments out, root causes first."""
