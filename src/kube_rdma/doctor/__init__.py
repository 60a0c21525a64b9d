"""Says why RDMA does not work, of a node or a pod: evidence in, findings out, root causes first.

explain, verify, agent, controller and cli may import it.
"""
