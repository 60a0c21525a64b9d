"""What developers of kube-rdma run: it writes files that are made from the product, and makes load.

tools/crds, tools/metrics and the tests start it from a checkout; neither wheel nor image has it.
"""
